#include "core/memory.h"
#include "tests/cuda_emulator/emulator.h"
#include "tests/train/cuda/captured_step_testing.h"

// What the emulator counts.
namespace minim::test {

static const Device device = Device::cuda();

TEST_CASE(
    "a step by a graph on a device is one launch that allocates nothing, and what it uses stays "
    "counted") {
  Training training("adamw");
  CapturedStep step(training.model, *training.optimizer, {.tokens_multiple = 64});
  const std::vector<PackedBatch> all = batches();
  for (size_t i = 0; i < 3; ++i)
    step.run(all[i], 0.01);
  // Each of 64 buffers for copies is allocated at its first use, and free once its copy is done.
  for (int i = 0; i < 64; ++i)
    Tensor::zeros({1}).to(device).item();
  const int64_t asked = memory::system_allocations(device);
  const int64_t activations = memory::current(memory::Category::activations, device);
  const int64_t gradients = memory::current(memory::Category::gradients, device);
  CHECK(activations > 0);
  CHECK(gradients >= 4 * training.model.parameter_count());
  const emulator::Statistics before = emulator::statistics();
  for (const PackedBatch& batch : all)
    step.run(batch, 0.01);
  CHECK(step.graphs() == 1);
  CHECK(memory::system_allocations(device) == asked);
  CHECK(memory::current(memory::Category::activations, device) == activations);
  CHECK(memory::current(memory::Category::gradients, device) == gradients);
  CHECK(emulator::statistics().synchronisations == before.synchronisations);
  CHECK(emulator::statistics().allocations == before.allocations);
}

TEST_CASE("a graph on a device that cannot be kept leaves all as it was, counts of steps too") {
  for (const std::string_view rule : {"adamw", "adafactor"}) {
    Training one_by_one(rule), launched(rule);
    CapturedStep step(launched.model, *launched.optimizer, {.tokens_multiple = 64});
    const std::vector<PackedBatch> all = batches();
    CHECK(one_by_one.eager(all[0], 0.01) == values_of(step.run(all[0], 0.01)));
    emulator::fail_graphs(1);
    std::string told;
    try {
      step.run(all[1], 0.02);
    } catch (const train::CannotRecord& error) {
      told = error.what();
    }
    CHECK(told.starts_with("graph: the work cannot be kept: "));
    CHECK(one_by_one.weights() == launched.weights());
    CHECK(one_by_one.state() == launched.state());
    CHECK(one_by_one.model.generator().offset == launched.model.generator().offset);
    for (size_t i = 1; i < 4; ++i)
      CHECK(one_by_one.eager(all[i], rate(i)) == values_of(step.run(all[i], rate(i))));
    CHECK(step.launched_steps() == 3);
    CHECK(one_by_one.weights() == launched.weights());
    CHECK(one_by_one.state() == launched.state());
  }
}

TEST_CASE("a Trainer on a device goes on without graphs where they cannot be kept, and says so") {
  struct Warnings : train::TrainerCallback {
    void on_warning(const TrainerState&, const std::string& sentence) override {
      all.push_back(sentence);
    }
    std::vector<std::string> all;
  };
  const auto run = [](int failures) {
    emulator::fail_graphs(failures);
    Run made({.per_device_train_batch_size = 4, .max_steps = 6}, small_set(24), {}, 0.1, device);
    const auto warnings = std::make_shared<Warnings>();
    made.trainer.add_callback(warnings);
    made.trainer.train();
    CHECK((made.trainer.launched_updates() > 0) == (failures == 0));
    CHECK(warnings->all.size() == size_t(failures));
    for (const std::string& warning : warnings->all)
      CHECK(
          warning.starts_with("updates are not launched as graphs from here on, which takes "
                              "longer: graph: the work cannot be kept: "));
    return made.weights();
  };
  CHECK(run(1) == run(0));
}

}  // namespace minim::test
