#include <atomic>
#include <cmath>
#include <limits>
#include <numeric>

#include <doctest/doctest.h>

#include "core/launch.h"
#include "core/random.h"

namespace minim {

struct CountKernel {
  std::atomic<int>* counts;
  HD void operator()(int64_t i) const { ++counts[i]; }
};

template <int N>
struct SumOffsets {
  std::atomic<int64_t>* sums;  // of the other operands' offsets, at the first operand's
  HD void operator()(const Offsets<N>& at) const {
    int64_t sum = 1;
    for (int k = 1; k < N; ++k)
      sum += at[k];
    sums[at[0]] += sum;
  }
};

struct RowKernel {
  const float* x;
  float *sums, *largest;
  int64_t n;
  template <class Group>
  HD void operator()(const Group& g, int64_t row) const {
    const float* in = x + row * n;
    const float sum = g.sum(n, [&](int64_t i) { return in[i]; });
    const float most = g.max(n, [&](int64_t i) { return in[i]; });
    if (g.leader()) {
      sums[row] = sum;
      largest[row] = most;
    }
  }
};

namespace {

TEST_CASE("launch_elements runs each element once, whatever their number") {
  for (int64_t n : {int64_t(0), int64_t(1), element_grain - 1, element_grain, element_grain + 1,
                    3 * element_grain + 17}) {
    std::vector<std::atomic<int>> counts(static_cast<size_t>(n));
    launch_elements(Device::cpu(), n, CountKernel{counts.data()});
    CAPTURE(n);
    CHECK(std::ranges::all_of(counts, [](const auto& c) { return c == 1; }));
  }
}

// Checks the offsets of all elements of `full` against index arithmetic done one by one.
template <int N>
void check_plan(const Shape& full, const Tensor* const (&operands)[N]) {
  CAPTURE(full.to_string());
  const BroadcastPlan<N> plan(full, operands);
  CHECK(plan.shape.numel() == full.numel());
  int64_t span = 1;
  for (int d = 0; d < full.rank(); ++d)
    span += std::max<int64_t>(full[d] - 1, 0) * operands[0]->strides()[d];
  std::vector<std::atomic<int64_t>> sums(static_cast<size_t>(span));
  launch_broadcast(Device::cpu(), plan, SumOffsets<N>{sums.data()});
  int64_t wrong = 0;
  std::vector<int64_t> expected(static_cast<size_t>(span), 0);
  for (int64_t e = 0; e < full.numel(); ++e) {
    int64_t at[N] = {}, rest = e;
    for (int d = full.rank() - 1; d >= 0; --d) {
      const int64_t i = rest % full[d];
      rest /= full[d];
      for (int k = 0; k < N; ++k) {
        const Tensor& t = *operands[k];
        const int own = d - (full.rank() - t.rank());
        if (own >= 0 && t.shape()[own] != 1) at[k] += i * t.strides()[own];
      }
    }
    expected[size_t(at[0])] += 1 + std::accumulate(at + 1, at + N, int64_t(0));
  }
  for (size_t i = 0; i < expected.size(); ++i)
    wrong += sums[i] != expected[i];
  CHECK(wrong == 0);
}

TEST_CASE("launch_broadcast walks contiguous, broadcast, permuted and empty operands") {
  const auto zeros = [](const Shape& shape) { return Tensor::zeros(shape); };
  const Tensor y = zeros({3, 4, 5}), plain = zeros({3, 4, 5}), row = zeros({5}),
               middle = zeros({4, 1});
  const Tensor scalar = zeros({}), column = zeros({3, 1, 1});
  const Tensor permuted = zeros({5, 3, 4}).view({3, 4, 5}, {4, 1, 12});
  const Tensor step = zeros({3, 4, 10}).view({3, 4, 5}, {40, 10, 2});
  check_plan<2>({3, 4, 5}, {&y, &plain});
  check_plan<2>({3, 4, 5}, {&y, &row});
  check_plan<2>({3, 4, 5}, {&y, &middle});
  check_plan<2>({3, 4, 5}, {&y, &scalar});
  check_plan<3>({3, 4, 5}, {&y, &column, &permuted});
  check_plan<3>({3, 4, 5}, {&permuted, &step, &row});
  check_plan<1>({3, 4, 5}, {&step});
  const Tensor empty = zeros({3, 0, 5}), one = zeros({});
  check_plan<2>({3, 0, 5}, {&empty, &row});
  check_plan<2>({}, {&one, &scalar});
  const Tensor eight = zeros({2, 1, 2, 1, 3, 1, 2, 2}), part = zeros({1, 3, 1, 2, 1});
  check_plan<2>({2, 1, 2, 1, 3, 1, 2, 2}, {&eight, &part});
}

TEST_CASE("launch_broadcast shares long rows and many rows between threads") {
  const Tensor line = Tensor::zeros({2 * element_grain + 5}), scalar = Tensor::zeros({});
  check_plan<2>({2 * element_grain + 5}, {&line, &scalar});
  const Tensor tall = Tensor::zeros({20011, 7}), column = Tensor::zeros({20011, 1});
  check_plan<2>({20011, 7}, {&tall, &column});
}

TEST_CASE("dimensions that all operands step through alike are merged") {
  const Tensor y = Tensor::zeros({3, 4, 5}), x = Tensor::zeros({3, 4, 5}), row = Tensor::zeros({5});
  CHECK(BroadcastPlan<2>({3, 4, 5}, {&y, &x}).shape == Shape{60});
  CHECK(BroadcastPlan<2>({3, 4, 5}, {&y, &x}).contiguous());
  CHECK(BroadcastPlan<2>({3, 4, 5}, {&y, &row}).shape == Shape{12, 5});
  CHECK_FALSE(BroadcastPlan<2>({3, 4, 5}, {&y, &row}).contiguous());
  const Tensor scalar = Tensor::zeros({});
  CHECK(BroadcastPlan<1>({}, {&scalar}).contiguous());
}

TEST_CASE("row kernels sum and find the largest for any row length") {
  for (int64_t n : {0, 1, 15, 16, 17, 100, 1003}) {
    CAPTURE(n);
    constexpr int64_t rows = 37;
    const Tensor x = randn({rows, n}, uint64_t(n));
    const Tensor sums = Tensor::full({rows}, NAN), largest = Tensor::full({rows}, NAN);
    launch_rows(Device::cpu(), rows, n,
                RowKernel{x.data<float>(), sums.data<float>(), largest.data<float>(), n});
    for (int64_t r = 0; r < rows; ++r) {
      const float* in = x.data<float>() + r * n;
      double sum = 0, size = 0;
      float most = -std::numeric_limits<float>::infinity();
      for (int64_t i = 0; i < n; ++i) {
        sum += double(in[i]);
        size += std::abs(double(in[i]));
        most = std::max(most, in[i]);
      }
      // Sixteen partial sums of n / 16 terms.
      CHECK(std::abs(double(sums.data<float>()[r]) - sum) <= double(n / 16 + 5) * 6e-8 * size);
      CHECK(largest.data<float>()[r] == most);
    }
  }
}

TEST_CASE("the largest of a row with a NaN is NaN, wherever it stands") {
  for (int64_t at = 0; at < 40; ++at) {
    std::vector<float> row(40, 1);
    row[size_t(at)] = NAN;
    row[size_t(39 - at) == size_t(at) ? 0 : size_t(39 - at)] = INFINITY;
    CHECK(std::isnan(SerialGroup{}.max(40, [&](int64_t i) { return row[size_t(i)]; })));
  }
}

TEST_CASE("chunks are the same whatever the number of threads") {
  const int before = thread_count();
  const auto chunks = [](int threads) {
    set_thread_count(threads);
    std::vector<std::atomic<int64_t>> ends(1000);
    parallel_chunks(1000, 64, [&](int64_t begin, int64_t end) { ends[size_t(begin)] = end; });
    return std::vector<int64_t>(ends.begin(), ends.end());
  };
  const auto one = chunks(1);
  CHECK(one[0] == 64);
  CHECK(one[960] == 1000);
  CHECK(chunks(2) == one);
  CHECK(chunks(5) == one);
  set_thread_count(3);
  CHECK(thread_count() == 3);
  std::vector<std::atomic<int>> calls(100);
  std::atomic<int> strange = 0;
  parallel_tasks(100, [&](int64_t i) {
    ++calls[size_t(i)];
    strange += thread_index() < 0 || thread_index() >= 3;
  });
  CHECK(std::ranges::all_of(calls, [](const auto& c) { return c == 1; }));
  CHECK(strange == 0);
  set_thread_count(before);
}

}  // namespace
}  // namespace minim
