#include <filesystem>

#include <nlohmann/json.hpp>

#include "core/file.h"
#include "optim/schedule.h"
#include "tests/core/contains.h"
#include "tests/train/small_model.h"
#include "train/accelerator.h"
#include "train/checkpoint.h"

// Runs in bf16 and fp16.
using namespace minim;
using namespace minim::test;
using train::Precision;

namespace {

TrainingArguments arguments_in(Precision precision, int64_t steps = 20) {
  return {.per_device_train_batch_size = 4,
          .max_steps = steps,
          .learning_rate = 0.02,
          .precision = precision,
          .eval_strategy = IntervalStrategy::steps,
          .logging_steps = 5};
}

// Makes the gradients of an update overflow: what is in .grad() before the backward is added to.
struct Overflow : train::TrainerCallback {
  Overflow(const DistilBertForSequenceClassification& m, std::vector<int64_t> s)
      : model(m), steps(std::move(s)) {}
  void on_train_begin(const TrainerState& state) override { on_step_end(state); }
  void on_step_end(const TrainerState& state) override {
    if (std::ranges::count(steps, state.global_step + 1) == 0) return;
    Tensor bias = model.classifier.bias;
    bias.set_grad(Tensor::full(bias.shape(), std::numeric_limits<double>::infinity(), DType::f32));
  }
  const DistilBertForSequenceClassification& model;
  std::vector<int64_t> steps;
};

}  // namespace

TEST_CASE("runs in bf16 and fp16 learn what one in f32 learns") {
  Run plain(arguments_in(Precision::fp32), 24, 10, 0.1);
  plain.trainer.train();
  for (const Precision precision : {Precision::bf16, Precision::fp16}) {
    Run mixed(arguments_in(precision), 24, 10, 0.1);
    mixed.trainer.train();
    const auto& ours = mixed.recorder->steps;
    // The first loss differs by the rounding of logits near 1 to 8 bits, the later ones by what
    // twenty large updates make of that.
    CHECK(std::abs(ours[0].loss - plain.recorder->steps[0].loss) < 0.02);
    for (size_t step = 0; step < ours.size(); ++step)
      CHECK(std::abs(ours[step].loss - plain.recorder->steps[step].loss) < 0.1);
    CHECK(ours.back().loss < ours.front().loss);
    CHECK(ours.back().loss != plain.recorder->steps.back().loss);
    CHECK(std::abs(value_of(mixed.recorder->evaluations.back(), "eval_loss") -
                   value_of(plain.recorder->evaluations.back(), "eval_loss")) < 0.1);
    for (const NamedTensor& parameter : mixed.model.parameters())
      CHECK(parameter.tensor.dtype() == DType::f32);
  }
}

TEST_CASE("auto is f32 on the CPU, where half precision is not faster, and bf16 on a device") {
  using train::autocast_dtype_of;
  CHECK_FALSE(autocast_dtype_of(Precision::automatic, Device::cpu()).has_value());
  CHECK(autocast_dtype_of(Precision::automatic, Device::cuda()) == DType::bf16);
  CHECK_FALSE(autocast_dtype_of(Precision::fp32, Device::cuda()).has_value());
  CHECK(autocast_dtype_of(Precision::bf16, Device::cpu()) == DType::bf16);
  CHECK(autocast_dtype_of(Precision::fp16, Device::cpu()) == DType::f16);

  Run plain(arguments_in(Precision::fp32, 3), 12, 6),
      automatic(arguments_in(Precision::automatic, 3), 12, 6);
  plain.trainer.train();
  automatic.trainer.train();
  CHECK(plain.weights() == automatic.weights());
}

TEST_CASE("bf16 and fp16 are other names, and exclude each other") {
  TrainingArguments arguments;
  CHECK(arguments.mixed_precision() == Precision::fp32);
  arguments.bf16 = true;
  CHECK(arguments.mixed_precision() == Precision::bf16);
  arguments.fp16 = true;
  CHECK(error_of([&] { arguments.validate(); }) ==
        "precision: is fp32 with bf16 true and fp16 true; give one of them");
  arguments = {.precision = Precision::automatic, .bf16 = true};
  CHECK(error_of([&] { arguments.validate(); }) ==
        "precision: is auto with bf16 true and fp16 false; give one of them");
  arguments = {.bf16_full_eval = true, .fp16_full_eval = true};
  CHECK(error_of([&] { arguments.validate(); }) ==
        "bf16_full_eval, fp16_full_eval: evaluation can be in one of them");
  CHECK(error_of([] { train::parse_precision("fp8"); }) ==
        "precision: there is no \"fp8\"; there are auto, fp32, bf16 and fp16");
}

TEST_CASE("full evaluation in half precision leaves the training as it is") {
  TrainingArguments arguments = arguments_in(Precision::fp32, 5);
  Run plain(arguments, 12, 6);
  arguments.bf16_full_eval = true;
  Run half(arguments, 12, 6);
  plain.trainer.train();
  half.trainer.train();
  CHECK(plain.weights() == half.weights());
  const double f32 = value_of(plain.recorder->evaluations[0], "eval_loss");
  const double bf16 = value_of(half.recorder->evaluations[0], "eval_loss");
  CHECK(f32 != bf16);
  CHECK(std::abs(f32 - bf16) < 0.02);  // rounding of logits near 1 to 8 bits
}

TEST_CASE("fp16 leaves out updates whose gradients overflow, and goes on") {
  Run run(arguments_in(Precision::fp16, 10), 24, 6);
  run.trainer.add_callback(std::make_shared<Overflow>(run.model, std::vector<int64_t>{1, 4}));
  run.trainer.train();
  const TrainerState& state = run.trainer.state();
  CHECK(state.global_step == 10);
  REQUIRE(state.scaler.has_value());
  // Twice halved; eight good updates, six of them after the last overflow.
  CHECK(*state.scaler == optim::GradScaler::State{65536.0 / 4, 6, 2});
  CHECK(run.optimizer.state("classifier.bias").step == 8);
  CHECK(value_of(run.recorder->logs.back(), "skipped_steps") == 2);
  CHECK(value_of(run.recorder->logs.back(), "loss_scale") == 16384);
  for (const float weight : run.weights())
    REQUIRE(std::isfinite(weight));
  // Other runs show no scale.
  Run plain(arguments_in(Precision::bf16, 5), 24, 6);
  plain.trainer.train();
  CHECK(names_of(plain.recorder->logs.back()) ==
        std::vector<std::string>{"loss", "grad_norm", "learning_rate", "epoch"});
}

TEST_CASE("gradients that overflow at every scale end a run in fp16") {
  Run run(arguments_in(Precision::fp16, 40), 24, 6);
  std::vector<int64_t> all(40);
  for (size_t i = 0; i < all.size(); ++i)
    all[i] = int64_t(i) + 1;
  run.trainer.add_callback(std::make_shared<Overflow>(run.model, all));
  // 2^16 is halved sixteen times to 1, and once more.
  const std::string error = error_of([&] { run.trainer.train(); });
  CHECK(error.starts_with("step 18: the loss is "));
  CHECK(error.ends_with(
      "; first not finite: the gradient of classifier.bias holds 2 infinities among 2 elements; "
      "f16 ends at 65504: bf16 does not, and a lower learning rate often helps"));
}

TEST_CASE("a forward that leaves the range of f16 ends the run and is named") {
  Run run(arguments_in(Precision::fp16), 24, 6);
  fill(run.model.pre_classifier.bias, 1e5);
  const std::string error = error_of([&] { run.trainer.train(); });
  CAPTURE(error);
  CHECK(error.starts_with("step 1: the loss is "));
  CHECK(contains(error, "f16 ends at 65504"));
  // bf16 spans what f32 does.
  Run other(arguments_in(Precision::bf16, 3), 24, 6);
  fill(other.model.pre_classifier.bias, 1e5);
  CHECK(error_of([&] { other.trainer.train(); }).empty());
}

TEST_CASE("a run in fp16 that was interrupted goes on bit for bit, its scale too") {
  const TemporaryFolder folder;
  TrainingArguments arguments = arguments_in(Precision::fp16, 8);
  arguments.save_strategy = IntervalStrategy::steps;
  arguments.save_steps = 4;
  const text::Tokenizer tokenizer = small_tokenizer();
  const auto run_in = [&](const std::string& place, const std::string& checkpoint,
                          std::vector<int64_t> overflows) {
    Run run(arguments, 24, 6, 0.1);
    run.trainer.add_callback(std::make_shared<train::CheckpointCallback>(
        place, train::RunDescription{run.model, tokenizer, run.optimizer, arguments}));
    run.trainer.add_callback(std::make_shared<Overflow>(run.model, std::move(overflows)));
    run.trainer.train({.resume_from_checkpoint = checkpoint});
    return std::pair(run.weights(), *run.trainer.state().scaler);
  };
  const auto whole = run_in(folder / "whole", "", {2, 7});
  const std::string checkpoint = folder / "whole" + "/checkpoint-4";
  const auto saved = nlohmann::json::parse(read_whole_file(checkpoint + "/scaler.json"));
  CHECK(saved ==
        nlohmann::json({{"scale", 32768.0}, {"_growth_tracker", 2}, {"skipped_steps", 1}}));
  const auto rest = run_in(folder / "rest", checkpoint, {7});
  CHECK(rest.first == whole.first);
  CHECK(rest.second == whole.second);
  CHECK(rest.second == optim::GradScaler::State{16384.0, 1, 2});

  std::filesystem::remove(checkpoint + "/scaler.json");
  CHECK(contains(error_of([&] { run_in(folder / "rest", checkpoint, {}); }), "scaler.json"));
}

TEST_CASE("a loop of one's own in mixed precision makes the Trainer's steps") {
  for (const std::string precision : {"bf16", "fp16"}) {
    TrainingArguments arguments{.per_device_train_batch_size = 4,
                                .num_train_epochs = 1,
                                .learning_rate = 0.02,
                                .precision = train::parse_precision(precision)};
    Run run(arguments, small_set(12), {}, 0.1);
    run.trainer.train();

    const auto base = small_model(0.1);
    optim::AdamW adamw(optim::decay_groups(base, 0.01), {.lr = 0.02});
    train::DataLoader data(small_set(12), {.batch_size = 4, .seed = arguments.seed});
    const optim::Schedule schedule = optim::make_schedule("linear", arguments.schedule_options(3));
    train::Accelerator accelerator({.mixed_precision = precision});
    auto [model, optimizer, loader, scheduler] = accelerator.prepare(base, adamw, data, schedule);
    model.train();
    for (const PackedBatch& batch : loader) {
      const Tensor loss = [&, &model = model] {
        const Autocast autocast = accelerator.autocast();
        return model.loss(model.forward(batch), batch.labels);
      }();
      accelerator.backward(loss);
      accelerator.clip_grad_norm(model.parameters(), 1.0);
      optimizer.step();
      CHECK_FALSE(accelerator.optimizer_step_was_skipped());
      scheduler.step();
      optimizer.zero_grad();
    }
    std::vector<float> weights;
    for (const NamedTensor& parameter : base.parameters())
      for (const float value : parameter.tensor.to_vector<float>())
        weights.push_back(value);
    CHECK(weights == run.weights());
  }
  CHECK(error_of([] { train::Accelerator({.mixed_precision = "fp8"}); }) ==
        "mixed_precision: there is no \"fp8\"; there are no, bf16 and fp16");
}
