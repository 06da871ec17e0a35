#include <cmath>
#include <limits>

#include "tests/train/small_model.h"

// Numbers that are not finite end a run before they reach the weights.
using namespace minim;
using namespace minim::test;

namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

// Sets one value of a parameter after some steps.
struct Poison : train::TrainerCallback {
  Poison(Tensor t, int64_t s, float v) : tensor(std::move(t)), step(s), value(v) {}
  void on_step_end(const TrainerState& state) override {
    if (state.global_step == step) tensor.values<float>()[0] = value;
  }
  Tensor tensor;
  int64_t step;
  float value;
};

}  // namespace

TEST_CASE("a loss that is not finite names the step and the parameter") {
  for (float value : {infinity, std::nanf("")}) {
    Run run({.per_device_train_batch_size = 4}, 20);
    run.trainer.add_callback(
        std::make_shared<Poison>(run.model.distilbert.layer[0].ffn.lin1.weight, 2, value));
    CHECK(error_of([&] { run.trainer.train(); }) ==
          "step 3: the loss is nan; first not finite: parameter "
          "distilbert.transformer.layer.0.ffn.lin1.weight; a lower learning rate or a longer "
          "warm-up often helps");
    CHECK(run.trainer.state().global_step == 2);
    // The log keeps the event.
    CHECK(run.recorder->events == "[ssl");
    CHECK(std::isnan(value_of(run.recorder->logs.back(), "loss")));
    CHECK(value_of(run.trainer.state().log_history.back(), "step") == 3);
  }
}

TEST_CASE("where every parameter is finite, the operation is named") {
  Run run({.per_device_train_batch_size = 4}, 20);
  // Products overflow: 3e38 * 3e38.
  for (const Tensor& weight : {run.model.pre_classifier.weight, run.model.pre_classifier.bias})
    std::ranges::fill(weight.values<float>(), 3e38f);
  const std::string error = error_of([&] { run.trainer.train(); });
  CHECK(
      error.starts_with("step 1: the loss is nan; first not finite: linear: the result of shape "));
}

namespace {

// Makes products overflow after an update, so that the next loss is not finite, until it is warned.
struct Overflow : train::TrainerCallback {
  Overflow(Tensor t, int64_t s) : weight(std::move(t)), step(s) {}
  void on_step_end(const TrainerState& state) override {
    if (state.global_step != step) return;
    before = weight.to_vector<float>();
    std::ranges::fill(weight.values<float>(), 3e38f);
  }
  void on_warning(const TrainerState&, const std::string& sentence) override {
    warnings.push_back(sentence);
    std::ranges::copy(before, weight.values<float>().begin());
  }
  Tensor weight;
  int64_t step;
  std::vector<float> before;
  std::vector<std::string> warnings;
};

// Spoils the gradient that is added to, after the updates of a range.
struct SpoilAfter : train::TrainerCallback {
  SpoilAfter(Tensor t, int64_t f, int64_t l) : bias(std::move(t)), first(f), last(l) {}
  void on_step_end(const TrainerState& state) override {
    if (state.global_step >= first && state.global_step <= last)
      bias.set_grad(Tensor::full(bias.shape(), infinity));
  }
  Tensor bias;
  int64_t first, last;
};

}  // namespace

TEST_CASE("with patience an update whose loss is not finite is left out, logged and told") {
  Run run({.per_device_train_batch_size = 4, .max_steps = 5, .non_finite_patience = 1}, 20);
  const auto overflow = std::make_shared<Overflow>(run.model.pre_classifier.weight, 2);
  run.trainer.add_callback(overflow);
  const Metrics result = run.trainer.train();
  REQUIRE(overflow->warnings.size() == 1);
  CHECK(overflow->warnings[0] ==
        "step 3: the loss is nan and the norm of all gradients nan; the update is left out, 1 of "
        "at most 1 in a row");
  // The log entry of the third update comes before those who look on are told of its end.
  CHECK(run.recorder->events == "[sslsssl]");
  CHECK(std::isnan(value_of(run.recorder->logs[0], "loss")));
  CHECK(std::isfinite(value_of(run.recorder->logs[1], "loss")));
  CHECK(run.optimizer.state("classifier.bias").step == 4);
  CHECK(run.trainer.state().non_finite_steps == 1);
  CHECK(run.trainer.state().non_finite_in_a_row == 0);
  double total = 0;
  for (const size_t update : {0, 1, 3, 4})
    total += run.recorder->steps[update].loss;
  CHECK(value_of(result, "train_loss") == doctest::Approx(total / 4).epsilon(1e-14));
}

TEST_CASE("patience ends with one update more in a row, and counts anew after a good one") {
  const auto run_with = [](int64_t patience, int64_t last) {
    auto run = std::make_unique<Run>(
        TrainingArguments{
            .per_device_train_batch_size = 4, .max_steps = 6, .non_finite_patience = patience},
        20);
    for (const auto& [from, to] : {std::pair<int64_t, int64_t>{1, last}, {4, 4}})
      run->trainer.add_callback(std::make_shared<SpoilAfter>(run->model.classifier.bias, from, to));
    return run;
  };
  const auto patient = run_with(2, 2);  // updates 2 and 3, and later 5
  patient->trainer.train();
  CHECK(patient->trainer.state().non_finite_steps == 3);
  CHECK(patient->optimizer.state("classifier.bias").step == 3);
  const auto impatient = run_with(1, 2);
  const std::string error = error_of([&] { impatient->trainer.train(); });
  CAPTURE(error);
  CHECK(error.starts_with("step 3: the loss is 0."));
  CHECK(error.find(" (1 in a row left out before it); first not finite: the gradient of "
                   "classifier.bias holds 2 infinities") != std::string::npos);
}

TEST_CASE("patience does not help where a parameter is not finite") {
  Run run({.per_device_train_batch_size = 4, .non_finite_patience = 9}, 20);
  run.trainer.add_callback(
      std::make_shared<Poison>(run.model.distilbert.layer[0].ffn.lin1.weight, 2, infinity));
  CHECK(error_of([&] { run.trainer.train(); }).starts_with("step 3: the loss is nan; first"));
}

TEST_CASE("a gradient that is not finite stops the run, with and without clipping") {
  for (double max_grad_norm : {1.0, 0.0}) {
    Run run({.per_device_train_batch_size = 4, .max_grad_norm = max_grad_norm}, 20);
    const std::vector<float> before = run.weights();
    struct Spoil : train::TrainerCallback {
      explicit Spoil(Run& r) : run(r) {}
      // What is in .grad() before the backward pass is added to.
      void on_train_begin(const TrainerState&) override {
        Tensor gradient = Tensor::full(run.model.classifier.bias.shape(), 0, DType::f32);
        gradient.values<float>()[0] = infinity;
        run.model.classifier.bias.set_grad(gradient);
      }
      Run& run;
    };
    run.trainer.add_callback(std::make_shared<Spoil>(run));
    const std::string error = error_of([&] { run.trainer.train(); });
    CAPTURE(error);
    CHECK(error.starts_with("step 1: the loss is "));
    CHECK(
        error.ends_with("; first not finite: the gradient of classifier.bias holds 1 "
                        "infinity among 2 elements; a lower learning rate or a longer warm-up "
                        "often helps"));
    CHECK(run.weights() == before);
    CHECK(std::isinf(value_of(run.recorder->logs.back(), "grad_norm")));
  }
}
