#include <cmath>
#include <limits>

#include <doctest/doctest.h>

#include "tests/cuda_emulator/device_array.h"
#include "tests/cuda_emulator/house_kernels.h"

// Kernels as the rest of the library writes them, run by the launchers of core/cuda/launchers.h.
namespace minim::emulator {

namespace {

TEST_CASE("launch_elements runs each element once, whatever their number") {
  for (const int64_t n : {0, 1, 255, 256, 257, 1000}) {
    const Emulation emulation;
    const DeviceArray<int> counts(std::vector<int>(1001));
    count_elements(counts.data(), n);
    const std::vector<int> values = counts.values();
    for (int64_t i = 0; i <= 1000; ++i)
      CHECK(values[size_t(i)] == int(i < n));
  }
}

// Rows of up to 1024 elements are done by warps, longer ones by blocks.
TEST_CASE("launch_rows sums, finds the largest and writes rows of any length") {
  for (const Order order : {Order::forward, Order::reverse, Order::random})
    for (const int64_t dim : {1, 31, 33, 1024, 1025, 3000}) {
      CAPTURE(dim);
      const Emulation emulation(order);
      const int64_t rows = 10;
      std::vector<float> x = some_numbers(size_t(rows * dim));
      x[size_t(3 * dim)] = std::numeric_limits<float>::quiet_NaN();
      const DeviceArray<float> dx(x), dy(x.size()), sums(10), largest(10);
      centre_rows(dy.data(), sums.data(), largest.data(), dx.data(), rows, dim);
      const std::vector<float> y = dy.values(), s = sums.values(), m = largest.values();
      for (size_t r = 0; r < 10; ++r) {
        if (r == 3) {
          CHECK(std::isnan(s[r]));
          CHECK(std::isnan(m[r]));
          continue;
        }
        float sum = 0, most = -std::numeric_limits<float>::infinity();
        for (size_t i = 0; i < size_t(dim); ++i) {
          sum += x[r * size_t(dim) + i];  // quarters up to 12.5: exact in any order
          most = std::max(most, x[r * size_t(dim) + i]);
        }
        CHECK(s[r] == sum);
        CHECK(m[r] == most);
        CHECK(y[r * size_t(dim)] == x[r * size_t(dim)] - sum);
      }
    }
}

}  // namespace

}  // namespace minim::emulator
