#include <sys/stat.h>

#include <fmt/format.h>

#include "cli.h"
#include "train/memory_options.h"
#include "train/memory_table.h"
#include "train_options.h"

namespace classifier {

using namespace minim;
using models::DistilBertConfig;

namespace {

struct MemoryOptions {
  train::TrainingArguments arguments;
  std::string model, preset, config_overrides, freeze;
  std::string optimizer, optimizer_arguments;
  std::vector<int64_t> lengths;
  int64_t vocab_size = 0, num_labels = 0, max_seq_length = 0, eval_rows = 0;
  bool json = false, by_tensor = false;
};

DistilBertConfig read_config(const MemoryOptions& options) {
  DistilBertConfig config;
  if (options.model.empty()) {
    config = DistilBertConfig::preset(options.preset);
  } else {
    struct stat status {};
    check(stat(options.model.c_str(), &status) == 0,
          "{}: no such folder or config.json; a model is a folder on this machine, nothing is "
          "downloaded",
          options.model);
    std::vector<std::string> notes;
    config = DistilBertConfig::from_pretrained(options.model, notes);
    print_notes(notes);
  }
  if (!options.config_overrides.empty()) config = config.with_overrides(options.config_overrides);
  if (options.vocab_size > 0) config.vocab_size = options.vocab_size;
  if (options.num_labels > 0) config.set_num_labels(options.num_labels);
  config.validate();
  return config;
}

// Tokens of each sequence, where all are equal.
int64_t length_of(const MemoryOptions& options, const DistilBertConfig& config) {
  constexpr int64_t usual = 128;
  const int64_t positions = config.max_position_embeddings;
  const int64_t length =
      options.max_seq_length > 0 ? options.max_seq_length : std::min(usual, positions);
  check(length <= positions, "--max-seq-length {}: is more than the model's {} positions", length,
        positions);
  return length;
}

models::BatchShape batch_of(const MemoryOptions& options, const DistilBertConfig& config) {
  if (!options.lengths.empty()) return models::BatchShape::of(options.lengths);
  return models::BatchShape::uniform(options.arguments.per_device_train_batch_size,
                                     length_of(options, config));
}

std::optional<train::EvaluationShape> evaluation_of(const MemoryOptions& options,
                                                    const DistilBertConfig& config) {
  if (options.eval_rows == 0) return {};
  const int64_t sequences =
      std::min(options.arguments.per_device_eval_batch_size, options.eval_rows);
  return train::EvaluationShape{options.eval_rows,
                                models::BatchShape::uniform(sequences, length_of(options, config))};
}

void run(const MemoryOptions& options) {
  check_usage(options.model.empty() != options.preset.empty(),
              "memory: give --model-name-or-path FOLDER (or its config.json) or --preset NAME, and "
              "not both");
  check_usage(options.optimizer_arguments.empty() || !options.optimizer.empty(),
              "--optim-args: goes with --optim, which names the optimizer that they are for");
  try {
    options.arguments.validate();
  } catch (const Error& error) {
    throw UsageError(error.what());
  }
  const DistilBertConfig config = read_config(options);
  const models::BatchShape batch = batch_of(options, config);
  auto model = models::model_without_weights(config);
  if (options.arguments.gradient_checkpointing) model.gradient_checkpointing_enable();
  if (!options.freeze.empty()) model.freeze(options.freeze);
  const std::vector<train::OptimizerChoice> optimizers =
      options.optimizer.empty()
          ? train::all_optimizers()
          : std::vector{train::OptimizerChoice{options.optimizer, options.optimizer_arguments}};
  const train::MemoryPlan plan = train::plan_memory(
      model, batch, optimizers,
      {.gradient_accumulation_steps = options.arguments.gradient_accumulation_steps,
       .autocast = options.arguments.autocast_dtype(Device::cpu()),
       .keeps_logits = !options.arguments.prediction_loss_only},
      evaluation_of(options, config));
  const std::vector<train::OptionPlan> alternatives = train::plan_options(model, plan);
  if (options.json) {
    fmt::print("{}", train::memory_json(plan, alternatives, options.by_tensor));
    return;
  }
  fmt::print("{}\n{}", train::memory_table(plan), train::options_table(alternatives, plan));
  if (options.by_tensor)
    fmt::print("\nKiB of each parameter's weight, and of its state under each optimizer\n\n{}",
               train::memory_by_tensor(plan));
}

}  // namespace

void add_memory(CLI::App& app) {
  auto options = std::make_shared<MemoryOptions>();
  MemoryOptions& o = *options;
  CLI::App& verb =
      add_verb(app, "memory", "Says what training takes in memory, from a config.json alone");
  verb.add_option(option("--model-name-or-path"), o.model,
                  "A config.json, or a folder that holds one; weights are not needed");
  verb.add_option("--preset", o.preset, "A new model instead")
      ->check(CLI::IsMember({"tiny", "small", "base"}));
  verb.add_option(option("--config-overrides"), o.config_overrides,
                  "Changes to that config, such as n_layers=3,dim=512");
  verb.add_option(option("--vocab-size"), o.vocab_size,
                  "Rows of the word embeddings (the config's)")
      ->check(CLI::Range(int64_t(1), int64_t(0x7fffffff)))
      ->default_str("");
  verb.add_option(option("--num-labels"), o.num_labels, "Classes (the config's)")
      ->check(CLI::Range(int64_t(1), int64_t(1'000'000)))
      ->default_str("");
  verb.add_option(option("--per-device-train-batch-size"), o.arguments.per_device_train_batch_size,
                  "Sequences of a batch");
  verb.add_option(option("--max-seq-length"), o.max_seq_length,
                  "Tokens of each: the longest that texts may have (128, or the model's positions)")
      ->check(at_least_three)
      ->default_str("");
  verb.add_option("--lengths", o.lengths,
                  "Tokens of each sequence of the batch, such as 7,12,31, instead of the two above")
      ->delimiter(',')
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->default_str("");
  verb.add_option(option("--gradient-accumulation-steps"), o.arguments.gradient_accumulation_steps,
                  "Batches of one update");
  add_gradient_checkpointing(verb, o.arguments);
  add_precision_options(verb, o.arguments);
  verb.add_option(option("--per-device-eval-batch-size"), o.arguments.per_device_eval_batch_size,
                  "Sequences of a batch in evaluation");
  verb.add_option(option("--max-eval-samples"), o.eval_rows,
                  "Rows that are evaluated between updates (0: none)")
      ->check(CLI::NonNegativeNumber);
  verb.add_flag(option("--prediction-loss-only"), o.arguments.prediction_loss_only,
                "They are evaluated for the loss alone, and no logits are kept");
  verb.add_option(
      "--freeze", o.freeze,
      "Parameters whose names match get no gradient, such as 'distilbert.embeddings.*'");
  verb.add_option("--optim", o.optimizer, "One optimizer instead of all");
  verb.add_option(option("--optim-args"), o.optimizer_arguments,
                  "Fields of its options, such as amsgrad=True");
  verb.add_flag(option("--by-tensor"), o.by_tensor, "Parameter by parameter as well");
  verb.add_flag("--json", o.json, "One JSON object, in bytes");
  verb.callback([options] { run(*options); });
}

}  // namespace classifier
