#include "optim/make_optimizer.h"
#include "tests/cuda_emulator/emulator.h"
#include "tests/train/small_model.h"

// What the emulator counts.
namespace minim::test {
namespace {

// What has happened on the device at the end of each update.
struct Counts : train::TrainerCallback {
  void on_step_end(const TrainerState&) override {
    waits.push_back(emulator::statistics().synchronisations);
    allocations.push_back(emulator::statistics().allocations);
  }
  std::vector<uint64_t> waits, allocations;
};

// Micro-batches of unequal sizes too.
TrainingArguments forty_steps(train::Precision precision, int64_t accumulation) {
  return {.per_device_train_batch_size = 4,
          .max_steps = 40,
          .gradient_accumulation_steps = accumulation,
          .precision = precision,
          .logging_steps = 10};
}

void check_steady(std::string_view rule, TrainingArguments arguments,
                  optim::OnNonFinite on_non_finite = optim::OnNonFinite::apply) {
  CAPTURE(rule);
  CAPTURE(int(arguments.precision));
  CAPTURE(arguments.gradient_accumulation_steps);
  const bool finds_rate = rule == "adafactor";
  if (finds_rate) {
    arguments.learning_rate = 0;
    arguments.lr_scheduler_type = "constant";
  }
  DistilBertForSequenceClassification model(small_config(0.1), {.device = Device::cuda()});
  const auto optimizer =
      optim::make_optimizer(rule, optim::decay_groups(model, 0.01),
                            {.learning_rate = arguments.learning_rate,
                             .optim_args = rule == "adam8bit" ? "min_8bit_size=64"
                                           : finds_rate ? "scale_parameter=true,relative_step=true"
                                                        : ""});
  optimizer->set_on_non_finite(on_non_finite);
  Trainer trainer(model, arguments, small_set(20), {}, *optimizer);
  const auto counts = std::make_shared<Counts>();
  trainer.add_callback(counts);
  trainer.train();
  REQUIRE(counts->waits.size() == 40);
  // The last update is logged, the first epochs bring the pool what it needs, and the graphs.
  CHECK(counts->waits[38] == counts->waits[30]);
  CHECK(counts->allocations[38] == counts->allocations[30]);
  CHECK(counts->waits[39] > counts->waits[38]);
  CHECK((trainer.launched_updates() > 30) == (arguments.gradient_accumulation_steps == 1));
}

TEST_CASE("a Trainer's updates between two logs neither wait for the device nor ask for memory") {
  using enum train::Precision;
  check_steady("adam8bit", forty_steps(fp32, 1));
  check_steady("adamw", forty_steps(fp16, 1));
  check_steady("adamw", forty_steps(bf16, 2));
  check_steady("adam8bit", forty_steps(fp16, 2));
  // Rates that the rule finds.
  check_steady("adafactor", forty_steps(bf16, 1));
  check_steady("adafactor", forty_steps(fp16, 2), optim::OnNonFinite::skip);
  check_steady("adamw", forty_steps(fp32, 2), optim::OnNonFinite::refuse);
}

}  // namespace
}  // namespace minim::test
