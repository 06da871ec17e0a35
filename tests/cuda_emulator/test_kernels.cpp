#include <algorithm>
#include <cmath>
#include <cstring>

#include <doctest/doctest.h>

#include "tests/cuda_emulator/device_array.h"
#include "tests/cuda_emulator/kernels.h"

// Right kernels: they give what the same loops on the host give, in every order of blocks, threads
// and work, and nothing is found in them.
namespace minim::emulator {

namespace {

template <class Body>
void in_every_order(const Body& body) {
  for (const Order order : {Order::forward, Order::reverse, Order::random})
    for (const bool deferred : {false, true}) {
      CAPTURE(int(order));
      CAPTURE(deferred);
      const Emulation emulation(order, deferred);
      const Collect collect;
      body();
      for (const Finding& f : collect.findings)
        FAIL_CHECK(f.text);
    }
}

TEST_CASE("A vectorised kernel with a rest runs for every length") {
  in_every_order([] {
    for (const int n : {1, 3, 4, 31, 255, 1000}) {
      const std::vector<float> x = some_numbers(size_t(n));
      const DeviceArray<float> dx(x), dy(x), dz(x);
      axpy(dy.data(), dx.data(), 3.0f, n);
      axpy_struct(dz.data(), dx.data(), 3.0f, n);
      const std::vector<float> y = dy.values(), z = dz.values();
      for (size_t i = 0; i < x.size(); ++i) {
        CHECK(y[i] == 4 * x[i]);  // all exact in float
        CHECK(z[i] == 4 * x[i]);
      }
    }
  });
}

TEST_CASE("A row kernel reduces over warps and shared memory") {
  in_every_order([] {
    for (const int dim : {1, 33, 128, 300}) {
      const int rows = 3;
      const std::vector<float> x = some_numbers(size_t(rows * dim));
      const DeviceArray<float> dx(x), dy(x.size());
      softmax(dy.data(), dx.data(), rows, dim);
      const std::vector<float> y = dy.values();
      for (int r = 0; r < rows; ++r) {
        const float* row = &x[size_t(r * dim)];
        double sum = 0;
        for (int i = 0; i < dim; ++i)
          sum += std::exp(double(row[i]));
        // The sum of up to 300 floats, and an exponential of about 1 ulp.
        for (int i = 0; i < dim; ++i)
          CHECK(y[size_t(r * dim + i)] ==
                doctest::Approx(std::exp(double(row[i])) / sum).epsilon(1e-5));
      }
    }
  });
}

TEST_CASE("A tile in shared memory transposes, also at ragged edges") {
  in_every_order([] {
    for (const auto& [rows, columns] : {std::pair(1, 1), std::pair(32, 64), std::pair(33, 50)}) {
      const std::vector<float> x = some_numbers(size_t(rows * columns));
      const DeviceArray<float> dx(x), dy(x.size());
      transpose(dy.data(), dx.data(), rows, columns);
      const std::vector<float> y = dy.values();
      for (int r = 0; r < rows; ++r)
        for (int c = 0; c < columns; ++c)
          CHECK(y[size_t(c * rows + r)] == x[size_t(r * columns + c)]);
    }
  });
}

TEST_CASE("Lanes of a warp exchange numbers through shared memory") {
  in_every_order([] {
    const std::vector<float> x = some_numbers(256);
    const DeviceArray<float> dx(x), dy(x.size());
    reverse_in_warps(dy.data(), dx.data(), 256);
    const std::vector<float> y = dy.values();
    for (size_t i = 0; i < x.size(); ++i)
      CHECK(y[i] == x[i / 32 * 32 + 31 - i % 32]);
  });
}

TEST_CASE("The gradient of an embedding table is a sum in the order of the tokens") {
  in_every_order([] {
    const int tokens = 20, dim = 70, rows = 5;
    const std::vector<float> dy = some_numbers(size_t(tokens * dim));
    std::vector<int> ids;
    for (int t = 0; t < tokens; ++t)
      ids.push_back(t % 7 == 6 ? -1 : t * 3 % rows);
    std::vector<float> expected(size_t(rows * dim));
    for (int t = 0; t < tokens; ++t)
      for (int c = 0; c < dim && ids[size_t(t)] >= 0; ++c)
        expected[size_t(ids[size_t(t)] * dim + c)] += dy[size_t(t * dim + c)];
    const DeviceArray<float> ddy(dy), dweight(std::vector<float>(expected.size()));
    const DeviceArray<int> dids(ids);
    embedding_backward(dweight.data(), ddy.data(), dids.data(), tokens, dim);
    CHECK(dweight.values() == expected);
  });
}

TEST_CASE("A histogram counts with atomics in shared and device memory") {
  in_every_order([] {
    std::vector<uint8_t> x;
    std::vector<unsigned> expected(256);
    for (int i = 0; i < 1000; ++i) {
      x.push_back(uint8_t(i * i % 251));
      ++expected[x.back()];
    }
    const DeviceArray<uint8_t> dx(x);
    const DeviceArray<unsigned> counts(std::vector<unsigned>(256));
    histogram(counts.data(), dx.data(), 1000);
    CHECK(counts.values() == expected);
  });
}

TEST_CASE("Bytes that neighbouring threads write do not race") {
  in_every_order([] {
    const int n = 600;
    const std::vector<float> x = some_numbers(size_t(n));
    const DeviceArray<float> dx(x), dscales(3);
    const DeviceArray<uint8_t> dcodes{size_t(n)};
    quantize(dcodes.data(), dscales.data(), dx.data(), n);
    const std::vector<uint8_t> codes = dcodes.values();
    const std::vector<float> scales = dscales.values();
    for (size_t block = 0; block < 3; ++block) {
      float most = 0;
      const size_t end = std::min<size_t>(block * 256 + 256, size_t(n));
      for (size_t i = block * 256; i < end; ++i)
        most = std::max(most, std::abs(x[i]));
      CHECK(scales[block] == most);
      for (size_t i = block * 256; i < end; ++i)
        CHECK(int(codes[i]) == 128 + int(std::nearbyint(127.0f * x[i] / most)));
    }
  });
}

TEST_CASE("Checks go off with the first kernel that was compiled without them") {
  const Emulation emulation;
  const DeviceArray<float> x(some_numbers(500)), y(500);
  plain_kernels().scale(y.data(), x.data(), 500);
  CHECK(y.values()[3] == 2 * x.values()[3] + 1);
  const Statistics s = statistics();
  CHECK(s.launches == 1);
  CHECK(s.blocks == 2);
  CHECK(s.threads == 512);
  CHECK(s.switches == 4);  // to the one fiber of each block, and back
  CHECK(s.checked_accesses == 0);
}

TEST_CASE("Two runs count the same") {
  for (int run = 0; run < 2; ++run) {
    const Emulation emulation;
    const DeviceArray<float> x(some_numbers(256)), y(256);
    instrumented_kernels().barriers(y.data(), x.data(), 256);
    CHECK(y.values() == x.values());  // reversed four times
    CHECK(statistics().checked_accesses == (kernels_are_instrumented() ? 256 * 6 : 0));
  }
}

}  // namespace

}  // namespace minim::emulator
