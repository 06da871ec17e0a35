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
