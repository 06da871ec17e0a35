#include "optim/clip.h"
#include "optim/make_optimizer.h"
#include "tests/cuda_emulator/emulator.h"
#include "tests/models/distilbert_tiny.h"

// What the emulator counts.
namespace minim::test {
namespace {

TEST_CASE("a whole step neither waits for the device nor asks for memory once it is warm") {
  const Device device = Device::cuda();
  for (const std::string_view name : {"adamw", "adafactor", "adam8bit"}) {
    CAPTURE(name);
    const auto model =
        DistilBertForSequenceClassification::from_pretrained(tiny, {.device = device});
    const auto optimizer =
        optim::make_optimizer(name, optim::decay_groups(model, 0.01),
                              {.optim_args = name == "adam8bit" ? "min_8bit_size=100" : ""});
    const NamedTensors parameters = model.parameters();
    PackedBatch on_host = packed("main");
    on_host.labels = labels_of(4);
    Tensor loss;
    const auto step = [&] {
      const PackedBatch batch = on_host.to(device);
      loss = model.loss(model.forward(batch), batch.labels);
      loss.backward();
      optimizer->step({.gradient_factor = optim::clip_on_device(parameters, 1.0).coefficient});
      optimizer->zero_grad();
    };
    for (int i = 0; i < 3; ++i)
      step();
    const emulator::Statistics before = emulator::statistics();
    const int64_t asked = memory::system_allocations(device);
    step();
    const emulator::Statistics after = emulator::statistics();
    CHECK(after.synchronisations == before.synchronisations);
    CHECK(after.allocations == before.allocations);
    CHECK(memory::system_allocations(device) == asked);
    CHECK(std::isfinite(loss.item()));
  }
}

}  // namespace
}  // namespace minim::test
