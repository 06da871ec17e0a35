#include <algorithm>
#include <ctime>

#include <fmt/core.h>

#include "tests/cuda_emulator/device_array.h"
#include "tests/cuda_emulator/kernels.h"

// Prints how fast kernels run on the emulator, and by how much the checks slow them.
namespace minim::emulator {

namespace {

constexpr int n = 1 << 18;

// Nanoseconds of the fastest of several runs, by `count`.
template <class Body>
double best(int count, const Body& body) {
  double least = 1e30;
  for (int run = 0; run < 7; ++run) {
    const std::clock_t begin = std::clock();  // of the processor: others may be at work too
    body();
    least = std::min(least, 1e9 * double(std::clock() - begin) / CLOCKS_PER_SEC / count);
  }
  return least;
}

void measure(const char* name, const SpeedKernels& kernels, bool checks) {
  const Emulation emulation;
  options().checks = checks;
  const DeviceArray<float> x(some_numbers(n)), y(some_numbers(n));
  const double scale = best(n, [&] { kernels.scale(y.data(), x.data(), n); });
  const double barriers = best(4 * n, [&] { kernels.barriers(y.data(), x.data(), n); });
  const double shuffles = best(5 * n, [&] { kernels.shuffles(y.data(), x.data(), n); });
  const double nothing = best(100, [&] {
    for (int i = 0; i < 100; ++i)
      kernels.nothing();
  });
  fmt::print("{:<28} {:10.1f} {:14.1f} {:14.1f} {:12.2f}\n", name, scale, barriers, shuffles,
             nothing / 1000);
}

}  // namespace

}  // namespace minim::emulator

int main() {
  using namespace minim::emulator;
  fmt::print("{:<28} {:>10} {:>14} {:>14} {:>12}\n", "", "ns/thread", "ns/barrier", "ns/shuffle",
             "us/launch");
  measure("plain kernels", plain_kernels(), false);
  measure("instrumented, checks off", instrumented_kernels(), false);
  measure("instrumented, checks on", instrumented_kernels(), true);
}
