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

}  // namespace minim::test
