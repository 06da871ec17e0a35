#include <cmath>
#include <limits>

#include "optim/adafactor.h"
#include "tests/train/small_model.h"

// Where the rate comes from: the arguments' schedule, or an optimizer that finds its own.
using namespace minim;
using namespace minim::test;

namespace {

// Trains with an Adafactor of these options; the recorded steps.
std::vector<TrainerState> adafactor_steps(const optim::AdafactorRule::Options& options,
                                          const TrainingArguments& arguments) {
  auto model = small_model();
  optim::Adafactor optimizer(model.parameters(), options);
  Trainer trainer(model, arguments, small_set(16), {}, optimizer);
  const auto recorder = std::make_shared<Recorder>();
  trainer.add_callback(recorder);
  trainer.train();
  return recorder->steps;
}

const TrainingArguments without_rate = {
    .max_steps = 4, .learning_rate = 0, .lr_scheduler_type = "constant"};

}  // namespace

TEST_CASE("a relative step trains without a rate, clipped, and its rate is what is logged") {
  // min(1e-6 * t, 1 / sqrt(t)), times nothing.
  const auto steps = adafactor_steps({.scale_parameter = false, .warmup_init = true}, without_rate);
  REQUIRE(steps.size() == 4);
  for (size_t i = 0; i < 4; ++i)
    CHECK(steps[i].learning_rate == doctest::Approx(1e-6 * double(i + 1)).epsilon(1e-14));
  const auto learned = adafactor_steps({}, without_rate);
  CHECK(learned.back().loss != learned.front().loss);
}

TEST_CASE("a rate or a schedule beside a relative step is refused, not ignored") {
  TrainingArguments with_rate = without_rate;
  with_rate.learning_rate = 1e-3;
  CHECK(error_of([&] { adafactor_steps({}, with_rate); }) ==
        "learning_rate: is 0.001, but adafactor finds its rate itself; must be 0, or relative_step "
        "false");
  TrainingArguments with_schedule = without_rate;
  with_schedule.lr_scheduler_type = "linear";
  CHECK(error_of([&] { adafactor_steps({}, with_schedule); }) ==
        "lr_scheduler_type: is linear, but adafactor finds its rate itself; must be constant");
}

TEST_CASE("an optimizer told to skip what is not finite trains on where the run would end") {
  struct Spoil : train::TrainerCallback {
    explicit Spoil(Tensor t) : bias(std::move(t)) {}
    // What is in .grad() before the backward pass is added to.
    void on_step_end(const TrainerState& state) override {
      if (state.global_step != 2) return;
      bias.set_grad(Tensor::full(bias.shape(), std::numeric_limits<double>::infinity()));
    }
    Tensor bias;
  };
  auto model = small_model();
  optim::AdamW optimizer(model.parameters());
  optimizer.set_on_non_finite(optim::OnNonFinite::skip);
  Trainer trainer(model, {.max_steps = 4}, small_set(16), {}, optimizer);
  trainer.add_callback(std::make_shared<Spoil>(model.classifier.bias));
  trainer.train();
  CHECK(optimizer.skipped_steps() == 1);
  CHECK(optimizer.state("classifier.bias").step == 3);
  CHECK(trainer.state().global_step == 4);
  for (const NamedTensor& parameter : model.parameters())
    CHECK(all_finite(parameter.tensor));
}
