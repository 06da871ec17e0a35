#include <cmath>
#include <limits>
#include <vector>

#include <doctest/doctest.h>

#include "core/launch.h"
#include "core/random.h"
#include "tests/core/cuda/needs_device.h"

namespace minim {

struct CountVisits {
  int* counts;
  HD void operator()(int64_t i) const { ++counts[i]; }
};

// The sum of the other operands' offsets, at the first operand's.
template <int N>
struct WriteOffsets {
  int64_t* to;
  HD void operator()(const Offsets<N>& at) const {
    int64_t sum = 1;
    for (int k = 1; k < N; ++k)
      sum += at[k];
    to[at[0]] = sum;
  }
};

template <class T>
struct RowStatistics {
  const T* x;
  T *sums, *largest, *products;
  int64_t n;

  template <class Group>
  HD void operator()(const Group& g, int64_t row) const {
    const T* in = x + row * n;
    const T sum = g.sum(n, [&](int64_t i) { return in[i]; });
    const T most = g.max(n, [&](int64_t i) { return in[i]; });
    // Two sums in a row: scratch memory is reused.
    const T squares = g.sum(n, [&](int64_t i) { return in[i] * in[i]; });
    g.each(n, [&](int64_t i) { products[row * n + i] = in[i] * sum; });
    if (g.leader()) {
      sums[row] = sum + squares;
      largest[row] = most;
    }
  }
};

struct CountNans {
  const float* x;
  int64_t *counts, n;

  template <class Group>
  HD void operator()(const Group& g, int64_t row) const {
    const int64_t nans =
        g.sum(n, [&](int64_t i) { return int64_t(x[row * n + i] != x[row * n + i]); });
    if (g.leader()) counts[row] = nans;
  }
};

namespace {

const Device device = Device::cuda();

TEST_CASE("launch_elements runs each element once on a device" * needs_device) {
  // Up to more elements than the largest grid has threads.
  for (int64_t n : {0, 1, 31, 33, 255, 256, 257, 1000, 256 * 8192 + 3}) {
    CAPTURE(n);
    const Tensor counts = Tensor::zeros({n}, DType::i32, device);
    launch_elements(device, n, CountVisits{counts.data<int>()});
    const std::vector<int> visits = counts.to_vector<int>();
    CHECK(std::ranges::count(visits, 1) == n);
  }
}

// The device walks the offsets that the CPU walks.
template <int N>
void check_plan(const Shape& full, const Tensor* const (&operands)[N]) {
  CAPTURE(full.to_string());
  const BroadcastPlan<N> plan(full, operands);
  int64_t span = 1;
  for (int d = 0; d < full.rank(); ++d)
    span += std::max<int64_t>(full[d] - 1, 0) * operands[0]->strides()[d];
  const Tensor here = Tensor::zeros({span}, DType::i64), there = here.to(device);
  launch_broadcast(Device::cpu(), plan, WriteOffsets<N>{here.data<int64_t>()});
  launch_broadcast(device, plan, WriteOffsets<N>{there.data<int64_t>()});
  there.bump_version();
  CHECK(there.to_vector<int64_t>() == here.to_vector<int64_t>());
}

TEST_CASE("launch_broadcast walks every layout on a device" * needs_device) {
  const auto zeros = [](const Shape& shape) { return Tensor::zeros(shape); };
  const Tensor y = zeros({3, 4, 5}), row = zeros({5}), middle = zeros({4, 1}), scalar = zeros({});
  const Tensor column = zeros({3, 1, 1}), permuted = zeros({5, 3, 4}).view({3, 4, 5}, {4, 1, 12});
  const Tensor step = zeros({3, 4, 10}).view({3, 4, 5}, {40, 10, 2});
  check_plan<2>({3, 4, 5}, {&y, &y});
  check_plan<2>({3, 4, 5}, {&y, &row});
  check_plan<2>({3, 4, 5}, {&y, &middle});
  check_plan<2>({3, 4, 5}, {&y, &scalar});
  check_plan<3>({3, 4, 5}, {&y, &column, &permuted});
  check_plan<3>({3, 4, 5}, {&permuted, &step, &row});
  check_plan<1>({3, 4, 5}, {&step});
  const Tensor empty = zeros({3, 0, 5}), tall = zeros({2011, 7}), tall_column = zeros({2011, 1});
  check_plan<2>({3, 0, 5}, {&empty, &row});
  check_plan<2>({}, {&scalar, &scalar});
  check_plan<2>({2011, 7}, {&tall, &tall_column});
  const Tensor eight = zeros({2, 1, 2, 1, 3, 1, 2, 2}), part = zeros({1, 3, 1, 2, 1});
  check_plan<2>({2, 1, 2, 1, 3, 1, 2, 2}, {&eight, &part});
}

template <class T>
void check_rows(int64_t rows, int64_t n, double rounding) {
  CAPTURE(rows);
  CAPTURE(n);
  const Tensor x = randn({rows, n}, uint64_t(n), dtype_of<T>);
  const auto run = [&](const Tensor& on) {
    const Tensor sums = on.new_empty({rows}), largest = on.new_empty({rows});
    const Tensor products = Tensor::empty_like(on);
    launch_rows(
        on.device(), rows, n,
        RowStatistics<T>{on.data<T>(), sums.data<T>(), largest.data<T>(), products.data<T>(), n});
    return std::vector{sums.to_vector<double>(), largest.to_vector<double>(),
                       products.to_vector<double>()};
  };
  const auto here = run(x), there = run(x.to(device)), again = run(x.to(device));
  CHECK(again == there);  // sums have one order
  CHECK(there[1] == here[1]);
  // Of both, partial sums have at most n / 16 terms, and what is summed is about 1 in size.
  const double error = rounding * double(n / 16 + 8) * double(2 * n + 1);
  for (size_t i = 0; i < here[0].size(); ++i)
    CHECK(std::abs(there[0][i] - here[0][i]) <= error);
  for (size_t i = 0; i < here[2].size(); ++i)
    CHECK(std::abs(there[2][i] - here[2][i]) <= 5 * error);
}

TEST_CASE("row kernels sum and find the largest, by warps and by blocks" * needs_device) {
  for (int64_t n : {0, 1, 2, 31, 32, 33, 255, 257, 1000, 1024, 1025, 3001}) {
    check_rows<float>(5, n, 1.2e-7);
    check_rows<double>(3, n, 2.3e-16);
  }
  check_rows<float>(2500, 3, 1.2e-7);
  check_rows<float>(0, 5, 1.2e-7);
}

TEST_CASE("more rows than a grid has blocks are done in turns" * needs_device) {
  const int64_t rows = 8192 + 5, n = 1;
  const Tensor x = Tensor::full({rows}, 2, DType::f32, device);
  const Tensor sums = Tensor::empty_like(x), largest = Tensor::empty_like(x),
               products = Tensor::empty_like(x);
  // A row size beyond a warp's, so that each row is a block's.
  launch_rows(device, rows, 2000,
              RowStatistics<float>{x.data<float>(), sums.data<float>(), largest.data<float>(),
                                   products.data<float>(), n});
  CHECK(sums.to_vector<float>() == std::vector<float>(size_t(rows), 6));
}

TEST_CASE("a NaN is the largest and is counted wherever it stands in a row" * needs_device) {
  for (int64_t n : {40, 2000})
    for (int64_t at : {int64_t(0), int64_t(1), n / 2, n - 1}) {
      std::vector<float> row(size_t(n), 1);
      row[size_t(at)] = NAN;
      row[size_t(at == 1 ? 2 : 1)] = INFINITY;
      const Tensor x = Tensor::from(row, {1, n}, device);
      const Tensor sums = x.new_empty({1}), largest = x.new_empty({1});
      const Tensor products = Tensor::empty_like(x), counts = x.new_empty({1}, DType::i64);
      launch_rows(device, 1, n,
                  RowStatistics<float>{x.data<float>(), sums.data<float>(), largest.data<float>(),
                                       products.data<float>(), n});
      launch_rows(device, 1, n, CountNans{x.data<float>(), counts.data<int64_t>(), n});
      CHECK(std::isnan(largest.item()));
      CHECK(counts.item() == 1);
    }
}

}  // namespace
}  // namespace minim
