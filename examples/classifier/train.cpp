#include <algorithm>
#include <sys/stat.h>

#include <fmt/format.h>

#include "core/file.h"
#include "core/parallel.h"
#include "models/distilbert.h"
#include "optim/make_optimizer.h"
#include "task_data.h"
#include "text/wordpiece_trainer.h"
#include "train/checkpoint.h"
#include "train/class_weights.h"
#include "train/early_stopping.h"
#include "train/folder_lock.h"
#include "train/interrupt.h"
#include "train/memory_ledger.h"
#include "train/progress.h"
#include "train/report_page.h"
#include "train/resume.h"
#include "train/run_folder.h"
#include "train/staged_folder.h"
#include "train/tensorboard.h"
#include "train/trainer.h"
#include "train_options.h"

namespace classifier {

using namespace minim;
using models::DistilBertConfig;

namespace {

bool exists(const std::string& path) {
  struct stat status {};
  return stat(path.c_str(), &status) == 0;
}

// The tokenizer of the model's folder, or a new vocabulary from the training texts.
text::Tokenizer make_tokenizer(const TrainOptions& options, const TaskData& data) {
  const std::string& folder = options.tokenizer.empty() ? options.model : options.tokenizer;
  if (!folder.empty()) {
    text::LoadedTokenizer loaded = text::load_tokenizer(folder);
    print_notes(loaded.notes);
    return std::move(loaded.tokenizer);
  }
  text::WordPieceTrainer trainer(
      {.vocab_size = options.vocab_size, .normalizer = {.lowercase = !options.cased}});
  data.for_each([&trainer](const text::Row& row) {
    trainer.add(row.text);
    if (row.text_pair) trainer.add(*row.text_pair);
  });
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
                                                       DistilBertConfig config, Device device) {
  if (options.model.empty())
    return models::DistilBertForSequenceClassification(
        config, {.seed = options.arguments.seed, .device = device});
  models::LoadReport report;
  auto model = models::DistilBertForSequenceClassification::from_pretrained(
      options.model,
      {.labels = config.num_labels(),
       .seed = options.arguments.seed,
       .device = device,
       .ignore_mismatched_sizes = options.ignore_mismatched_sizes},
      &report);
  fmt::print("{}: {}\n", options.model, report.summary());
  print_notes(report.notes);
  model.config.labels = config.labels;
  model.config.problem_type = config.problem_type;
  return model;
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

// Throws where the output folder holds another run.
void check_output_dir(const TrainOptions& options) {
  const bool has_model = exists(options.output_dir + "/config.json");
  check(options.overwrite_output_dir ||
            (!has_model && train::list_checkpoints(options.output_dir).empty()),
        "{}: holds {} already; choose another --output-dir, add --overwrite-output-dir, or go on "
        "with --resume-from-checkpoint",
        options.output_dir, has_model ? "a model" : "checkpoints");
}

// The folder to go on from, "" for a new run. The output folder is that of the same run, or new.
std::string checkpoint_of(const TrainOptions& options) {
  const std::optional<std::string>& given = options.resume_from_checkpoint;
  std::string checkpoint;
  if (given) checkpoint = train::find_checkpoint(given->empty() ? options.output_dir : *given);
  if (!train::is_inside(checkpoint, options.output_dir)) check_output_dir(options);
  return checkpoint;
}

// The metrics of the weights that are saved: those of the last evaluation, or of the best.
train::Metrics eval_results_of(const train::TrainerState& state, bool best) {
  train::Metrics results;
  const int64_t step = best ? state.best_global_step.value_or(0) : 0;
  for (const train::Metrics& entry : state.log_history) {
    const bool evaluates =
        std::ranges::any_of(entry, [](const auto& m) { return m.first == "eval_loss"; });
    if (evaluates && (step == 0 || entry.back().second == double(step))) results = entry;
  }
  return results;
}

// Writes report.html for the model that was saved. The run is safe by now, so that a report that
// cannot be made is no failure of it.
void write_report(const TrainOptions& options, const train::RunDescription& run,
                  const train::TrainerState& state, const train::Metrics& train_results,
                  const train::Metrics& eval_results, const train::MemoryLedger& ledger,
                  const train::MeasuredMemory& measured, const text::Examples& eval_set,
                  std::vector<std::string> eval_texts) {
  try {
    train::RunReport report{.title = options.output_dir,
                            .log_history = state.log_history,
                            .train_results = train_results,
                            .eval_results = eval_results,
                            .predictions = {},
                            .ledger = ledger,
                            .measured = measured,
                            .optimizer_state = run.optimizer.state_size(),
                            .options = train::options_of(run),
                            .environment = train::environment_of(run.model.device())};
    report.environment.insert(report.environment.begin(), {"minim", MINIM_VERSION});
    if (!eval_set.sequences.empty() && !options.arguments.prediction_loss_only) {
      const train::Evaluator evaluator(run.model, options.arguments.per_device_eval_batch_size, {});
      report.predictions = {train::parse_problem_type(options.problem_type),
                            run.model.config.labels, evaluator.predict(eval_set),
                            std::move(eval_texts)};
    }
    write_whole_file(options.output_dir + "/report.html", train::report_page(report));
  } catch (const Error& error) {
    print_notes({fmt::format("there is no report.html: {}", error.what())});
  }
}

void run(TrainOptions options) {
  options.complete();
  train::TrainingArguments& arguments = options.arguments;
  const train::NamedArguments further = options.further_arguments();
  const std::string checkpoint = checkpoint_of(options);
  train::check_writable_folder(options.output_dir);
  const train::FolderLock lock(options.output_dir);
  train::remove_left_overs(options.output_dir);
  if (checkpoint.empty()) {
    check_output_dir(options);  // once more, now that no other run can have written there
    for (const std::string& folder : {options.model, options.tokenizer})
      if (!folder.empty()) check_model_folder(folder);
  } else {
    print_notes(train::check_same_run(checkpoint, arguments, "", further));
    options.model = checkpoint;
    options.tokenizer = checkpoint;
    options.config_overrides = "";
  }
  const Device device = choose_device(options.device);
  const train::ProblemType type = train::parse_problem_type(options.problem_type);

  TaskData train_data(options.data, options.train_file, text::Role::train, type, options.cache());
  if (options.shuffle_train_dataset) train_data.shuffle(arguments.seed);
  train_data.keep_first(options.max_train_samples);
  std::optional<TaskData> validation_data;
  if (!options.validation_file.empty()) {
    validation_data.emplace(options.data, options.validation_file, text::Role::evaluate, type,
                            options.cache());
    validation_data->keep_first(options.max_eval_samples);
  }

  const text::Tokenizer tokenizer = make_tokenizer(options, train_data);
  std::vector<std::string> notes;
  DistilBertConfig config = options.model.empty()
                                ? new_config(options, tokenizer)
                                : DistilBertConfig::from_pretrained(options.model, notes);
  if (!options.config_overrides.empty()) config = config.with_overrides(options.config_overrides);
  const std::string model_name = options.model.empty() ? options.preset : options.model;
  train::check_vocabulary(tokenizer, config.vocab_size, model_name);
  const int64_t max_length = std::min(options.max_seq_length, config.max_position_embeddings);
  if (max_length < options.max_seq_length)
    print_notes(
        {fmt::format("--max-seq-length {} is more than the model's {} positions; texts are "
                     "cut to {} tokens",
                     options.max_seq_length, max_length, max_length)});
  train_data.tokenize(tokenizer, max_length);
  const text::LabelSet labels = task_labels(options, train_data.labelled(), type, config);
  config.labels = labels.names();
  config.problem_type = train::name_of(type);
  text::Examples train_set = train_data.encode(tokenizer, max_length, type, labels);
  text::Examples eval_set;
  if (validation_data) {
    validation_data->tokenize(tokenizer, max_length);
    if (options.skip_unseen_labels) leave_out_unseen_labels(validation_data->labelled(), labels);
    eval_set = validation_data->encode(tokenizer, max_length, type, labels);
  }

  if (!options.class_weights.empty()) {
    check(type == train::ProblemType::single_label_classification,
          "--class-weights: {} has no rows of one class each", options.train_file);
    arguments.class_weights =
        train::parse_class_weights(options.class_weights, labels, train_set.labels);
  }

  auto model = make_model(options, config, device);
  if (!options.freeze.empty()) fmt::print("frozen: {} tensors\n", model.freeze(options.freeze));
  const auto optimizer = make_optimizer(options, model);
  const train::MemoryLedger ledger(model, optimizer->state_size());
  const std::optional<DType> precision = arguments.autocast_dtype(device);
  fmt::print(
      "model: {} parameters, {} labels, vocabulary {}; {} state {:.1f} MiB; {}; {}\n",
      model.parameter_count(), labels.size(), tokenizer.vocab_size(), optimizer->name(),
      double(ledger.predicted_optimizer_state) / 0x1p20,
      precision ? fmt::format("mixed precision {}", name_of(*precision)) : "f32",
      device.is_cpu() ? fmt::format("{} threads", thread_count()) : fmt::format("on {}", device));
  std::fflush(stdout);

  train::Trainer trainer(model, arguments, std::move(train_set), std::move(eval_set), *optimizer,
                         train::default_metrics(type));
  const train::RunDescription description{model, tokenizer, *optimizer, arguments, further};
  trainer.add_callback(std::make_shared<train::ProgressCallback>(
      stderr, stdout, train::is_terminal(stderr) && !options.disable_tqdm));
  if (options.reports_to("jsonl"))
    trainer.add_callback(std::make_shared<train::JsonLogCallback>(options.output_dir));
  if (options.reports_to("tensorboard"))
    trainer.add_callback(std::make_shared<train::TensorBoardCallback>(
        options.logging_dir.empty()
            ? train::default_logging_dir(options.output_dir, !checkpoint.empty())
            : options.logging_dir));
  trainer.add_callback(std::make_shared<train::CheckpointCallback>(options.output_dir, description,
                                                                   options.overwrite_output_dir));
  if (options.early_stopping_patience)
    trainer.add_callback(std::make_shared<train::EarlyStoppingCallback>(
        arguments, *options.early_stopping_patience, options.early_stopping_threshold));
  trainer.add_callback(std::make_shared<train::InterruptCallback>());

  train::Metrics train_results;
  try {
    train_results = trainer.train({.resume_from_checkpoint = checkpoint});
  } catch (const train::Interrupted& interrupted) {
    fmt::print(stderr,
               "{}; to go on, repeat the command with --resume-from-checkpoint and without "
               "--overwrite-output-dir\n",
               interrupted.what());
    throw CLI::RuntimeError(128 + train::InterruptCallback::signal());
  }
  const train::Metrics eval_results =
      eval_results_of(trainer.state(), arguments.load_best_model_at_end);
  train::save_run(options.output_dir, description, trainer.state(), train_results, eval_results);
  // This run has none, so all are of the one that it replaced.
  if (options.overwrite_output_dir && arguments.save_strategy == train::IntervalStrategy::no)
    for (const auto& [step, path] : train::list_checkpoints(options.output_dir))
      train::remove_folder(path);
  const train::MemoryLedger whole(description, trainer.state());
  const train::MeasuredMemory measured(device);
  if (options.reports_to("html"))
    write_report(options, description, trainer.state(), train_results, eval_results, whole,
                 measured, trainer.eval_set(),
                 validation_data ? validation_data->texts() : std::vector<std::string>{});
  fmt::print("{}\n{}saved to {}\n", train::format_metrics(train_results),
             train::ledger_table(whole, measured), options.output_dir);
}

}  // namespace

void add_train(CLI::App& app) {
  auto options = std::make_shared<TrainOptions>();
  CLI::App& verb = add_verb(app, "train", "Fine-tunes a model, or trains one from scratch");
  options->add_to(verb);
  verb.callback([options] { run(*options); });
}

}  // namespace classifier
