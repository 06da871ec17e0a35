#include <cstdlib>
#include <filesystem>

#include "core/file.h"
#include "optim/make_optimizer.h"
#include "tests/core/contains.h"
#include "tests/core/cuda/needs_device.h"
#include "tests/train/small_model.h"
#include "train/checkpoint.h"

// A Trainer whose updates are graphs, beside one that runs them operation by operation.
namespace minim::test {
namespace {

const Device device = Device::cuda();

// The environment with that value of MINIM_CUDA_GRAPHS, as long as it lives.
struct Graphs {
  explicit Graphs(const char* value) { setenv("MINIM_CUDA_GRAPHS", value, 1); }
  ~Graphs() { unsetenv("MINIM_CUDA_GRAPHS"); }
  Graphs(const Graphs&) = delete;
  Graphs& operator=(const Graphs&) = delete;
};

// What is trained, by which rule.
struct Case {
  std::string_view rule = "adamw";
  std::string options = {};
  train::Precision precision = train::Precision::fp32;
  std::string problem = {};
  std::vector<double> class_weights = {};
  optim::OnNonFinite on_non_finite = optim::OnNonFinite::apply;
  double initializer_range = 0.3;
};

text::Examples set_for(const std::string& problem) {
  text::Examples set = small_set(24);
  if (problem.empty()) return set;
  const int64_t columns = problem == "regression" ? 1 : 2;
  std::vector<float> targets;
  for (int64_t i = 0; i < 24 * columns; ++i)
    targets.push_back(float(i * 5 % 3 % 2));
  set.labels = Tensor::from(targets, columns == 1 ? Shape{24} : Shape{24, columns});
  return set;
}

DistilBertConfig config_for(const Case& c) {
  DistilBertConfig config = small_config(0.1);
  config.problem_type = c.problem;
  config.initializer_range = c.initializer_range;
  if (c.problem == "regression") config.set_num_labels(1);
  return config;
}

struct Trained {
  explicit Trained(const Case& c, int64_t steps = 12, const std::string& checkpoints = "",
                   const std::string& resume = "")
      : model(config_for(c), {.device = device}) {
    const bool finds_rate = contains(c.options, "relative_step=true");
    const TrainingArguments arguments{
        .per_device_train_batch_size = 4,
        .max_steps = steps,
        .learning_rate = finds_rate ? 0.0 : 0.02,
        .lr_scheduler_type = finds_rate ? "constant" : "linear",
        .precision = c.precision,
        .class_weights = c.class_weights,
        .logging_steps = 4,
        .save_strategy = checkpoints.empty() ? IntervalStrategy::no : IntervalStrategy::steps,
        .save_steps = 6};
    const auto optimizer = optim::make_optimizer(
        c.rule, optim::decay_groups(model, 0.01),
        {.learning_rate = arguments.learning_rate,
         .optim_args = c.rule == "adam8bit" ? "min_8bit_size=64,block_size=64" : c.options});
    optimizer->set_on_non_finite(c.on_non_finite);
    Trainer trainer(model, arguments, set_for(c.problem), {}, *optimizer);
    const auto recorder = std::make_shared<Recorder>();
    trainer.add_callback(recorder);
    const text::Tokenizer tokenizer = small_tokenizer();
    if (!checkpoints.empty())
      trainer.add_callback(std::make_shared<train::CheckpointCallback>(
          checkpoints, train::RunDescription{model, tokenizer, *optimizer, arguments}));
    trainer.train({.resume_from_checkpoint = resume});
    for (const Metrics& log : recorder->logs)
      for (const auto& [name, value] : log)
        numbers.push_back(std::isnan(value) ? -1e300 : value);
    for (const NamedTensor& entry : optimizer->state_dict())
      for (const double value : entry.tensor.to_vector<double>())
        numbers.push_back(value);
    for (const float weight : weights_of(model))
      numbers.push_back(weight);
    numbers.push_back(double(model.generator().offset));
    state = trainer.state();
    launched = trainer.launched_updates();
    for (const NamedTensor& entry : optimizer->state_dict("classifier.bias"))
      if (entry.name == "step")
        CHECK(entry.tensor.item() ==
              double(steps - (state.scaler ? state.scaler->skipped_steps : 0)));
  }

  DistilBertForSequenceClassification model;
  std::vector<double> numbers;  // logs, state, weights, and the place in the random sequence
  TrainerState state;
  int64_t launched = 0;
};

// Returns how the run ended.
TrainerState check_same(const Case& c) {
  const Trained with(c);
  const Graphs off("0");
  const Trained without(c);
  CHECK(with.launched > 6);
  CHECK(without.launched == 0);
  CHECK(with.numbers == without.numbers);
  CHECK(with.state.total_loss == without.state.total_loss);
  CHECK(with.state.tokens == without.state.tokens);
  CHECK(with.state.largest_batch.tokens == without.state.largest_batch.tokens);
  CHECK(with.state.scaler == without.state.scaler);
  return with.state;
}

TEST_CASE("a run on a device by graphs has the bits of one without: rules and precisions" *
          needs_device) {
  using enum train::Precision;
  for (const Case& c : {Case{.rule = "adamw"}, Case{.rule = "adam8bit", .precision = bf16},
                        Case{.rule = "adafactor", .precision = fp16},
                        Case{.rule = "adafactor", .options = "relative_step=true"}}) {
    CAPTURE(c.rule);
    CAPTURE(int(c.precision));
    check_same(c);
  }
}

TEST_CASE("a run on a device by graphs has the bits of one without: every kind of label" *
          needs_device) {
  for (const char* problem : {"regression", "multi_label_classification"}) {
    CAPTURE(problem);
    check_same({.problem = problem});
  }
  check_same({.precision = train::Precision::fp16, .class_weights = {0.5, 2.0}});
}

TEST_CASE(
    "gradients that overflow in graphs on a device leave updates out, which count for nothing" *
    needs_device) {
  // Weights so large that gradients times 65536 leave the range of f16.
  for (const auto& [rule, choice] : {std::pair("adamw", optim::OnNonFinite::apply),
                                     {"sgd", optim::OnNonFinite::skip},
                                     {"adam8bit", optim::OnNonFinite::refuse},
                                     {"adafactor", optim::OnNonFinite::apply}}) {
    CAPTURE(rule);
    const TrainerState end = check_same({.rule = rule,
                                         .precision = train::Precision::fp16,
                                         .on_non_finite = choice,
                                         .initializer_range = 3.0});
    CHECK(end.scaler->skipped_steps > 1);
    CHECK(end.scaler->skipped_steps < 10);
  }
}

TEST_CASE("a run on a device by graphs goes on from a checkpoint bit for bit" * needs_device) {
  const TemporaryFolder folder;
  const Case c{.precision = train::Precision::fp16, .initializer_range = 3.0};
  const auto run = [&](const std::string& name, const std::string& checkpoint) {
    return Trained(c, 12, folder / name, checkpoint).state.scaler;
  };
  const std::string checkpoint = folder / "whole" + "/checkpoint-6";
  const auto whole = run("whole", ""), rest = run("rest", checkpoint);
  const Graphs off("0");
  const auto without = run("without", checkpoint);
  CHECK(whole->skipped_steps > 1);
  CHECK(whole == rest);
  CHECK(whole == without);
  for (const std::string file : {"model.safetensors", "optimizer.safetensors", "scaler.json"}) {
    const auto bytes = [&](const std::string& name) {
      return read_whole_file(folder / name + "/checkpoint-12/" + file);
    };
    CAPTURE(file);
    CHECK(bytes("whole") == bytes("rest"));
    CHECK(bytes("whole") == bytes("without"));
  }
}

TEST_CASE("graphs of a Trainer on a device are chosen by a word in the environment" *
          needs_device) {
  const Graphs unclear("maybe");
  CHECK(error_of([] { Trained({}, 2); }) ==
        "trainer: MINIM_CUDA_GRAPHS is \"maybe\", it must be 0 or 1");
}

}  // namespace
}  // namespace minim::test
