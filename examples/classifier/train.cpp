#include <sys/stat.h>

#include <fmt/format.h>

#include "cli.h"
#include "core/parallel.h"
#include "models/distilbert.h"
#include "optim/make_optimizer.h"
#include "optim/schedule.h"
#include "text/wordpiece_trainer.h"
#include "train/checkpoint.h"
#include "train/progress.h"
#include "train/run_folder.h"
#include "train/trainer.h"

namespace classifier {

using namespace minim;
using models::DistilBertConfig;

namespace {

struct TrainOptions {
  train::TrainingArguments arguments;
  DataOptions data;
  std::string model, preset, tokenizer, train_file, validation_file, output_dir;
  std::string config_overrides, freeze, problem_type = "single_label_classification";
  std::string eval_strategy, save_strategy = "no", report_to = "jsonl";
  std::string sampling_strategy = "random";
  int64_t max_seq_length = 128, vocab_size = 4000;
  bool cased = false, sort_labels_as_text = false, skip_unseen_labels = false;
  bool ignore_mismatched_sizes = false, overwrite_output_dir = false, disable_tqdm = false;
};

bool exists(const std::string& path) {
  struct stat status {};
  return stat(path.c_str(), &status) == 0;
}

// The tokenizer of the model's folder, or a new vocabulary from the training texts.
text::Tokenizer make_tokenizer(const TrainOptions& options, const text::Dataset& data) {
  const std::string& folder = options.tokenizer.empty() ? options.model : options.tokenizer;
  if (!folder.empty()) {
    text::LoadedTokenizer loaded = text::load_tokenizer(folder);
    print_notes(loaded.notes);
    return std::move(loaded.tokenizer);
  }
  text::WordPieceTrainer trainer(
      {.vocab_size = options.vocab_size, .normalizer = {.lowercase = !options.cased}});
  for (const text::Row& row : data.rows) {
    trainer.add(row.text);
    if (row.text_pair) trainer.add(*row.text_pair);
  }
  return text::Tokenizer(text::TokenizerConfig::bert(trainer.train(), !options.cased));
}

DistilBertConfig new_config(const TrainOptions& options, const text::Tokenizer& tokenizer) {
  DistilBertConfig config = DistilBertConfig::preset(options.preset);
  config.vocab_size = tokenizer.vocab_size();
  config.pad_token_id = tokenizer.pad_token_id().value_or(0);
  return config;
}

// Labels of the task, in the order of a checkpoint that already has them.
text::LabelSet task_labels(const TrainOptions& options, const text::Dataset& data,
                           train::ProblemType type, const DistilBertConfig& config) {
  if (type == train::ProblemType::regression)
    return text::LabelSet(std::vector<std::string>{"LABEL_0"});
  std::vector<std::string> warnings;
  const auto order =
      options.sort_labels_as_text ? text::LabelOrder::code_point : text::LabelOrder::numeric;
  text::LabelSet labels = text::collect_labels(data, order, warnings);
  if (!options.model.empty()) labels = text::keep_checkpoint_order(labels, config.labels, warnings);
  print_notes(warnings);
  return labels;
}

models::DistilBertForSequenceClassification make_model(const TrainOptions& options,
                                                       DistilBertConfig config) {
  if (options.model.empty())
    return models::DistilBertForSequenceClassification(config, {.seed = options.arguments.seed});
  models::LoadReport report;
  auto model = models::DistilBertForSequenceClassification::from_pretrained(
      options.model,
      {.labels = config.num_labels(),
       .seed = options.arguments.seed,
       .ignore_mismatched_sizes = options.ignore_mismatched_sizes},
      &report);
  fmt::print("{}: {}\n", options.model, report.summary());
  print_notes(report.notes);
  model.config.labels = config.labels;
  model.config.problem_type = config.problem_type;
  return model;
}

train::EncodedDataset encode(const text::Dataset& data, const text::Tokenizer& tokenizer,
                             int64_t max_length, train::ProblemType type,
                             const text::LabelSet& labels) {
  train::EncodedDataset encoded = train::encode_dataset(data, tokenizer, max_length, type, labels);
  int64_t tokens = 0;
  for (int64_t length : encoded.examples.lengths())
    tokens += length;
  fmt::print("{}: {} rows, {:.1f} tokens each, {} cut to {}\n", data.file, data.rows.size(),
             double(tokens) / double(data.rows.size()), encoded.truncated_rows, max_length);
  return encoded;
}

void check_options(const TrainOptions& options) {
  check_usage(
      options.model.empty() != options.preset.empty(),
      "train: give --model-name-or-path FOLDER for a saved model or --preset NAME for a new "
      "one, and not both");
  check_usage(options.model.empty() || options.config_overrides.empty(),
              "--config-overrides: goes with --preset; a saved model has its own config.json");
  check_usage(options.eval_strategy.empty() || options.eval_strategy == "no" ||
                  !options.validation_file.empty(),
              "--eval-strategy {}: needs a --validation-file", options.eval_strategy);
  try {
    options.arguments.validate();
  } catch (const Error& error) {
    throw UsageError(error.what());
  }
}

text::SamplingStrategy parse_sampling(const std::string& name) {
  return name == "random"       ? text::SamplingStrategy::random
         : name == "sequential" ? text::SamplingStrategy::sequential
                                : text::SamplingStrategy::group_by_length;
}

std::unique_ptr<optim::AnyOptimizer> make_optimizer(const TrainOptions& options,
                                                    const nn::Module& model) {
  NamedTensors trained;
  for (const NamedTensor& parameter : model.parameters())
    if (parameter.tensor.requires_grad()) trained.push_back(parameter);
  check(!trained.empty(), "--freeze {}: freezes every parameter; nothing is left to train",
        options.freeze);
  const train::TrainingArguments& arguments = options.arguments;
  return optim::make_optimizer(arguments.optim,
                               optim::decay_groups(trained, arguments.weight_decay),
                               arguments.optimizer_arguments());
}

// What tells this run from others and is none of the Trainer's arguments, with the names of
// run_classification.py; what was not given is null.
train::NamedArguments further_arguments(const TrainOptions& options) {
  const auto text = [](const std::string& value) -> train::ArgumentValue {
    return value.empty() ? train::ArgumentValue(nullptr) : value;
  };
  return {{"model_name_or_path", text(options.model)},
          {"preset", text(options.preset)},
          {"config_overrides", text(options.config_overrides)},
          {"tokenizer_name", text(options.tokenizer)},
          {"vocab_size", options.vocab_size},
          {"cased", options.cased},
          {"train_file", options.train_file},
          {"validation_file", text(options.validation_file)},
          {"output_dir", options.output_dir},
          {"text_column_names", options.data.text_columns},
          {"label_column_name", text(options.data.label_column)},
          {"problem_type", options.problem_type},
          {"sort_labels_as_text", options.sort_labels_as_text},
          {"skip_unseen_labels", options.skip_unseen_labels},
          {"ignore_mismatched_sizes", options.ignore_mismatched_sizes},
          {"max_seq_length", options.max_seq_length},
          {"freeze", text(options.freeze)},
          {"report_to", options.report_to}};
}

void run(TrainOptions options) {
  check_options(options);
  for (const std::string& folder : {options.model, options.tokenizer})
    if (!folder.empty()) check_model_folder(folder);
  const bool has_model = exists(options.output_dir + "/config.json");
  check(options.overwrite_output_dir ||
            (!has_model && train::list_checkpoints(options.output_dir).empty()),
        "{}: holds {} already; choose another --output-dir or add --overwrite-output-dir",
        options.output_dir, has_model ? "a model" : "checkpoints");
  train::check_writable_folder(options.output_dir);
  const train::ProblemType type = train::parse_problem_type(options.problem_type);
  train::TrainingArguments& arguments = options.arguments;
  if (options.eval_strategy.empty())
    options.eval_strategy = options.validation_file.empty() ? "no" : "epoch";
  arguments.eval_strategy = train::parse_interval_strategy(options.eval_strategy);
  arguments.save_strategy = train::parse_interval_strategy(options.save_strategy);
  arguments.train_sampling_strategy = parse_sampling(options.sampling_strategy);

  const text::Dataset train_data = options.data.read(options.train_file, text::Role::train, type);
  std::optional<text::Dataset> validation_data;
  if (!options.validation_file.empty())
    validation_data = options.data.read(options.validation_file, text::Role::evaluate, type);

  const text::Tokenizer tokenizer = make_tokenizer(options, train_data);
  std::vector<std::string> notes;
  DistilBertConfig config = options.model.empty()
                                ? new_config(options, tokenizer)
                                : DistilBertConfig::from_pretrained(options.model, notes);
  if (!options.config_overrides.empty()) config = config.with_overrides(options.config_overrides);
  const text::LabelSet labels = task_labels(options, train_data, type, config);
  config.labels = labels.names();
  config.problem_type = train::name_of(type);
  if (validation_data && options.skip_unseen_labels)
    leave_out_unseen_labels(*validation_data, labels);

  const std::string model_name = options.model.empty() ? options.preset : options.model;
  train::check_vocabulary(tokenizer, config.vocab_size, model_name);
  const int64_t max_length = std::min(options.max_seq_length, config.max_position_embeddings);
  if (max_length < options.max_seq_length)
    print_notes(
        {fmt::format("--max-seq-length {} is more than the model's {} positions; texts are "
                     "cut to {} tokens",
                     options.max_seq_length, max_length, max_length)});
  text::Examples train_set = encode(train_data, tokenizer, max_length, type, labels).examples;
  text::Examples eval_set;
  if (validation_data)
    eval_set = encode(*validation_data, tokenizer, max_length, type, labels).examples;

  auto model = make_model(options, config);
  if (!options.freeze.empty()) fmt::print("frozen: {} tensors\n", model.freeze(options.freeze));
  const auto optimizer = make_optimizer(options, model);
  const train::MemoryLedger ledger(model, optimizer->state_size());
  fmt::print("model: {} parameters, {} labels, vocabulary {}; {} state {:.1f} MiB; {} threads\n",
             model.parameter_count(), labels.size(), tokenizer.vocab_size(), optimizer->name(),
             double(ledger.predicted_optimizer_state) / 0x1p20, thread_count());
  std::fflush(stdout);

  train::Trainer trainer(model, arguments, std::move(train_set), std::move(eval_set), *optimizer,
                         train::default_metrics(type));
  const train::RunDescription description{model, tokenizer, *optimizer, arguments,
                                          further_arguments(options)};
  trainer.add_callback(std::make_shared<train::ProgressCallback>(
      stderr, stdout, train::is_terminal(stderr) && !options.disable_tqdm));
  if (options.report_to == "jsonl")
    trainer.add_callback(std::make_shared<train::JsonLogCallback>(options.output_dir));
  trainer.add_callback(
      std::make_shared<train::CheckpointCallback>(options.output_dir, description));

  const train::Metrics train_results = trainer.train();
  train::Metrics eval_results;
  for (const train::Metrics& entry : trainer.state().log_history)
    if (entry.front().first == "eval_loss") eval_results = entry;
  train::save_run(options.output_dir, description, trainer.state(), train_results, eval_results);
  fmt::print("{}\nsaved to {}\n", train::format_metrics(train_results), options.output_dir);
}

}  // namespace

void add_train(CLI::App& app) {
  auto options = std::make_shared<TrainOptions>();
  TrainOptions& o = *options;
  train::TrainingArguments& a = o.arguments;
  CLI::App& verb = add_verb(app, "train", "Fine-tunes a model, or trains one from scratch");

  verb.add_option(option("--model-name-or-path"), o.model,
                  "Folder with config.json, weights and tokenizer");
  verb.add_option("--preset", o.preset, "A new model instead")
      ->check(CLI::IsMember({"tiny", "small", "base"}));
  verb.add_option(option("--config-overrides"), o.config_overrides,
                  "Changes to the preset's config, such as dropout=0.2,n_layers=3");
  verb.add_option(option("--tokenizer-name"), o.tokenizer,
                  "Folder of the tokenizer, if not the model's");
  verb.add_option(option("--vocab-size"), o.vocab_size,
                  "Pieces of the vocabulary that a new model learns from the training texts")
      ->check(CLI::PositiveNumber);
  verb.add_flag("--cased", o.cased, "Keep case and accents in that vocabulary");
  verb.add_option(option("--train-file"), o.train_file, "CSV, TSV or JSON lines")->required();
  verb.add_option(option("--validation-file"), o.validation_file, "The same, to evaluate on");
  verb.add_option(option("--output-dir"), o.output_dir, "Folder for model and records")->required();
  verb.add_flag(option("--overwrite-output-dir"), o.overwrite_output_dir,
                "Write over a model in the output folder");
  o.data.add_to(verb);
  verb.add_option(option("--problem-type"), o.problem_type, "What the labels are")
      ->check(CLI::IsMember(
          {"single_label_classification", "multi_label_classification", "regression"}));
  verb.add_flag(option("--sort-labels-as-text"), o.sort_labels_as_text,
                "Order whole-number labels as run_classification.py does (1, 10, 2)");
  verb.add_flag(option("--skip-unseen-labels"), o.skip_unseen_labels,
                "Leave out validation rows whose label training does not have");
  verb.add_flag(option("--ignore-mismatched-sizes"), o.ignore_mismatched_sizes,
                "Give weights of another shape new values");
  verb.add_option("--freeze", o.freeze, "Parameters whose names match get no gradient");
  verb.add_option(option("--max-seq-length"), o.max_seq_length, "Tokens that are kept of a text")
      ->check(at_least_three);

  std::string known;
  for (const std::string_view name : optim::optimizer_names())
    known += (known.empty() ? "" : ", ") + std::string(name);
  verb.add_option("--optim", a.optim, known + ", or Hugging Face's name of it");
  verb.add_option(option("--optim-args"), a.optim_args,
                  "Other fields of the optimizer's options, such as amsgrad=True");
  verb.add_option(option("--learning-rate"), a.learning_rate, "Highest learning rate");
  verb.add_option(option("--weight-decay"), a.weight_decay, "Not for biases and norms");
  verb.add_option(option("--adam-beta1"), a.adam_beta1, "Decay of the average gradient");
  verb.add_option(option("--adam-beta2"), a.adam_beta2, "Decay of the average squared gradient");
  verb.add_option(option("--adam-epsilon"), a.adam_epsilon, "Added to the root of the latter");
  verb.add_option(option("--max-grad-norm"), a.max_grad_norm,
                  "Gradients are scaled to it; 0: never");
  verb.add_option(option("--lr-scheduler-type"), a.lr_scheduler_type,
                  "How the rate changes over the steps")
      ->check(CLI::IsMember(std::vector<std::string>(optim::schedule_names().begin(),
                                                     optim::schedule_names().end())));
  verb.add_option(option("--warmup-steps"), a.warmup_steps, "Below 1: a ratio of all steps");
  verb.add_option(option("--warmup-ratio"), a.warmup_ratio, "Used where --warmup-steps is 0");
  verb.add_option(option("--num-train-epochs"), a.num_train_epochs,
                  "Passes over the training data");
  verb.add_option(option("--max-steps"), a.max_steps, "Above 0: instead of epochs");
  verb.add_option(option("--per-device-train-batch-size"), a.per_device_train_batch_size,
                  "Rows of a batch");
  verb.add_option(option("--per-device-eval-batch-size"), a.per_device_eval_batch_size,
                  "Rows of a batch in evaluation");
  verb.add_option(option("--gradient-accumulation-steps"), a.gradient_accumulation_steps,
                  "Batches of one update");
  verb.add_option(option("--train-sampling-strategy"), o.sampling_strategy,
                  "Order of the rows; group_by_length puts similar lengths together")
      ->check(CLI::IsMember({"random", "sequential", "group_by_length"}));
  verb.add_option("--seed", a.seed, "Of new weights, dropout and the order of rows");
  verb.add_option(option("--data-seed"), a.data_seed, "Of the order of rows alone");
  verb.add_option(option("--eval-strategy"), o.eval_strategy,
                  "When to evaluate (epoch where there is a validation file)")
      ->check(CLI::IsMember({"no", "steps", "epoch"}));
  verb.add_option(option("--eval-steps"), a.eval_steps,
                  "Updates between evaluations (as many as between log entries)");
  verb.add_option(option("--logging-steps"), a.logging_steps, "Updates between log entries");
  verb.add_option(option("--save-strategy"), o.save_strategy,
                  "When to write OUTPUT_DIR/checkpoint-STEP: model, optimizer state and all else "
                  "that going on from there takes; for AdamW three times the model's size each, so "
                  "never unless asked for. The output folder itself gets all of that at the end")
      ->check(CLI::IsMember({"no", "steps", "epoch"}));
  verb.add_option(option("--save-steps"), a.save_steps,
                  "Updates between checkpoints under steps; below 1: a ratio of all steps");
  verb.add_option(option("--save-total-limit"), a.save_total_limit,
                  "Checkpoints to keep; older ones are removed (0 or not given: none are)");
  verb.add_flag(
      option("--save-only-model"), a.save_only_model,
      "Leave optimizer, schedule and random numbers out of checkpoints and output folder");
  verb.add_option(option("--report-to"), o.report_to,
                  "Log entries to log.jsonl in the output folder")
      ->check(CLI::IsMember({"jsonl", "none"}));
  verb.add_flag(option("--disable-tqdm"), o.disable_tqdm, "Plain lines instead of a progress line");
  verb.callback([options] { run(*options); });
}

}  // namespace classifier
