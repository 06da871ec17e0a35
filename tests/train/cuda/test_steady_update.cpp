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

TEST_CASE("a Trainer's updates between two logs neither wait for the device nor ask for memory") {
  const Device device = Device::cuda();
  for (const train::Precision precision : {train::Precision::fp32, train::Precision::bf16})
    for (const std::string_view name : {"adamw", "adafactor", "adam8bit"}) {
      CAPTURE(name);
      DistilBertForSequenceClassification model(small_config(0.1), {.device = device});
      const auto optimizer =
          optim::make_optimizer(name, optim::decay_groups(model, 0.01),
                                {.optim_args = name == "adam8bit" ? "min_8bit_size=64" : ""});
      // Micro-batches of unequal sizes too.
      Trainer trainer(model,
                      {.per_device_train_batch_size = 4,
                       .max_steps = 60,
                       .gradient_accumulation_steps = 2,
                       .precision = precision,
                       .logging_steps = 15},
                      small_set(20), {}, *optimizer);
      const auto counts = std::make_shared<Counts>();
      trainer.add_callback(counts);
      trainer.train();
      REQUIRE(counts->waits.size() == 60);
      // The last update is logged, the first epochs bring the pool what it needs.
      CHECK(counts->waits[58] == counts->waits[45]);
      CHECK(counts->allocations[58] == counts->allocations[45]);
      CHECK(counts->waits[59] > counts->waits[58]);
    }
}

}  // namespace
}  // namespace minim::test
