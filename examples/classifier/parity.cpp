#include "train/parity.h"

#include <fmt/format.h>

#include "cli.h"
#include "optim/make_optimizer.h"
#include "train/training_arguments.h"

namespace classifier {

using namespace minim;
using models::DistilBertConfig;
using models::DistilBertForSequenceClassification;

namespace {

struct ParityOptions {
  train::TrainingArguments arguments;
  std::string model, preset, config_overrides, device = "cuda";
  std::vector<int64_t> lengths = {7, 12, 31, 1, 64, 20, 3, 44};
  bool json = false;
};

void run(const ParityOptions& options) {
  check_usage(options.model.empty() != options.preset.empty(),
              "parity: give --model-name-or-path FOLDER or --preset NAME, and not both");
  check_usage(options.model.empty() || options.config_overrides.empty(),
              "--config-overrides: goes with --preset; a saved model has its own config.json");
  const UsableDevice usable = usable_device(options.device);
  check(usable.device.is_cuda(), "parity: there is no device to compare the cpu with: {}",
        usable.why_not.empty() ? "cpu was asked for" : usable.why_not);

  std::vector<std::string> notes;
  DistilBertConfig config;
  if (options.model.empty()) {
    config = DistilBertConfig::preset(options.preset);
    if (!options.config_overrides.empty()) config = config.with_overrides(options.config_overrides);
    config.validate();
  } else {
    check_model_folder(options.model);
    config = DistilBertConfig::from_pretrained(options.model, notes);
    print_notes(notes);
  }
  const train::TrainingArguments& arguments = options.arguments;
  const train::ParityStep step = {
      .make_model =
          [&](Device device) {
            return options.model.empty()
                       ? DistilBertForSequenceClassification(
                             config, {.seed = arguments.seed, .device = device})
                       : DistilBertForSequenceClassification::from_pretrained(
                             options.model, {.seed = arguments.seed, .device = device});
          },
      .make_optimizer =
          [&](const nn::Module& model) {
            return optim::make_optimizer(
                arguments.optim, optim::decay_groups(model.parameters(), arguments.weight_decay),
                arguments.optimizer_arguments());
          },
      .max_grad_norm = arguments.max_grad_norm};
  const PackedBatch batch = train::random_batch(config, options.lengths, arguments.seed);
  const train::Parity parity = train::compare_step(step, usable.device, batch);
  fmt::print("{}", options.json ? train::parity_json(parity) : train::parity_table(parity));
  if (!parity.agrees()) throw CLI::RuntimeError(1);
}

}  // namespace

void add_parity(CLI::App& app) {
  auto options = std::make_shared<ParityOptions>();
  ParityOptions& o = *options;
  o.arguments.weight_decay = 0.01;
  CLI::App& verb =
      add_verb(app, "parity", "Compares a training step on a GPU with the same one on the CPU");
  verb.add_option(option("--model-name-or-path"), o.model, "Folder with config.json and weights");
  verb.add_option("--preset", o.preset, "A new model instead")
      ->check(CLI::IsMember({"tiny", "small", "base"}));
  verb.add_option(option("--config-overrides"), o.config_overrides,
                  "Changes to the preset's config, such as dropout=0.2,n_layers=3");
  verb.add_option("--lengths", o.lengths, "Tokens of each sequence of the batch, such as 7,12,31")
      ->delimiter(',')
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->check(CLI::PositiveNumber);
  add_device_option(verb, o.device);
  verb.add_option("--optim", o.arguments.optim, "The optimizer of the step");
  verb.add_option(option("--optim-args"), o.arguments.optim_args,
                  "Fields of its options, such as amsgrad=True");
  verb.add_option(option("--learning-rate"), o.arguments.learning_rate, "Of the step");
  verb.add_option(option("--weight-decay"), o.arguments.weight_decay, "Not for biases and norms");
  verb.add_option(option("--max-grad-norm"), o.arguments.max_grad_norm,
                  "Gradients are scaled to it; 0: never");
  verb.add_option("--seed", o.arguments.seed, "Of new weights, dropout and the batch");
  verb.add_flag("--json", o.json, "One JSON object");
  verb.callback([options] { run(*options); });
}

}  // namespace classifier
