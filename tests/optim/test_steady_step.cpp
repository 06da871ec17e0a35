#include <doctest/doctest.h>

#include "core/memory.h"
#include "optim/clip.h"
#include "optim/make_optimizer.h"
#include "tests/cuda_emulator/emulator.h"
#include "tests/optim/optim_testing.h"

using namespace minim;
using namespace minim::optim;
using namespace minim::test;

// What the emulator counts.
TEST_CASE("a steady step neither waits for the device nor asks for memory, and launches little") {
  const Device device = Device::cuda();
  for (const std::string_view name : optimizer_names()) {
    CAPTURE(name);
    NamedTensors all;
    for (int64_t i = 0; i < 30; ++i) {
      Tensor p = Tensor::from(noise(20 * (i + 1), 2),
                              i % 2 == 0 ? Shape{20, i + 1} : Shape{20 * (i + 1)}, device);
      p.set_requires_grad();
      p.set_grad(p.clone());
      all.push_back({fmt::format("p{}", i), p});
    }
    std::vector<ParameterGroup> groups = decay_groups(all, 0.01);
    const auto optimizer = make_optimizer(
        name, groups, {.optim_args = name.ends_with("8bit") ? "min_8bit_size=100" : ""});
    const auto step = [&] {
      const auto [norm, coefficient] = clip_on_device(all, 1.0);
      optimizer->step({.gradient_factor = coefficient});
    };
    step();
    step();
    const auto wait = [&] { all[0].tensor.to_vector<float>(); };
    wait();
    const emulator::Statistics before = emulator::statistics();
    const int64_t asked = memory::system_allocations(device);
    step();
    const emulator::Statistics after = emulator::statistics();
    CHECK(after.synchronisations == before.synchronisations);
    CHECK(after.allocations == before.allocations);
    CHECK(memory::system_allocations(device) == asked);
    // The norm takes one for its table and two for itself; then AdamW one, 8-bit Adam one more for
    // what it keeps in f32, Adafactor eight passes.
    const uint64_t launches = name.starts_with("adafactor") ? 8 : name.ends_with("8bit") ? 2 : 1;
    wait();
    CHECK(emulator::statistics().launches - before.launches == 3 + launches);

    // Gradients elsewhere: the table is written anew, and nothing else is different.
    for (NamedTensor& p : all)
      p.tensor.set_grad(p.tensor.clone());
    const uint64_t waits = emulator::statistics().synchronisations;
    step();
    CHECK(emulator::statistics().synchronisations == waits);
  }
}
