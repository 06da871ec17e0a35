#include <cmath>
#include <cstring>

#include <doctest/doctest.h>

#include "core/gemm.h"
#include "core/parallel.h"
#include "core/random.h"

namespace minim {
namespace {

// A matrix as gemm sees it, in memory with wider rows filled with NaN between them.
template <class T>
struct Operand {
  int64_t rows, columns, stride;
  bool transposed;
  std::vector<T> memory;

  Operand(int64_t rows, int64_t columns, bool transposed, int64_t gap, uint64_t seed)
      : rows(rows),
        columns(columns),
        stride((transposed ? rows : columns) + gap),
        transposed(transposed),
        memory(size_t((transposed ? columns : rows) * stride + 1), T(NAN)) {
    const std::vector<T> values = randn({rows, columns}, seed).to_vector<T>();
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < columns; ++j)
        at(i, j) = values[size_t(i * columns + j)];
  }
  T& at(int64_t i, int64_t j) {
    return memory[size_t(transposed ? j * stride + i : i * stride + j)];
  }
  Matrix<T> matrix() const { return {memory.data(), stride, transposed}; }
};

template <class T>
void check_gemm(int64_t m, int64_t n, int64_t k, bool ta, bool tb, T alpha, T beta, int64_t gap) {
  CAPTURE(m);
  CAPTURE(n);
  CAPTURE(k);
  CAPTURE(ta);
  CAPTURE(tb);
  CAPTURE(alpha);
  CAPTURE(beta);
  Operand<T> a(m, k, ta, gap, 1), b(k, n, tb, gap, 2), c(m, n, false, gap, 3);
  const Operand<T> before = c;
  // beta = 0 must not read c.
  if (beta == 0) std::ranges::fill(c.memory, T(NAN));
  gemm<T>(m, n, k, alpha, a.matrix(), b.matrix(), beta, c.memory.data(), c.stride);
  // |error| <= (k + 2) eps sum |a| |b|, whatever the order of the sum.
  const double eps = std::numeric_limits<T>::epsilon();
  int64_t wrong = 0;
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      const double old = beta == 0 ? 0 : double(before.memory[size_t(i * c.stride + j)]);
      double sum = double(beta) * old, size = std::abs(sum);
      for (int64_t p = 0; p < k; ++p) {
        const double product = double(alpha) * double(a.at(i, p)) * double(b.at(p, j));
        sum += product;
        size += std::abs(product);
      }
      wrong += !(std::abs(double(c.at(i, j)) - sum) <= double(k + 3) * eps * size);
    }
  CHECK(wrong == 0);
  for (int64_t i = 0; i + 1 < m; ++i)
    for (int64_t j = n; j < c.stride; ++j)
      CHECK(std::isnan(c.memory[size_t(i * c.stride + j)]));
}

TEST_CASE_TEMPLATE("gemm equals a triple loop for any size, transposition, stride and factor", T,
                   float, double) {
  for (auto [m, n, k] : {std::array<int64_t, 3>{1, 1, 1},
                         {3, 5, 7},
                         {1, 17, 33},
                         {31, 1, 19},
                         {2, 2, 100},
                         {49, 51, 53},
                         {100, 3, 64},
                         {5, 130, 40}})
    for (bool ta : {false, true})
      for (bool tb : {false, true}) {
        check_gemm<T>(m, n, k, ta, tb, 1, 0, 0);
        check_gemm<T>(m, n, k, ta, tb, T(0.5), T(-2), 3);
        check_gemm<T>(m, n, k, ta, tb, T(-1), T(1), 1);
      }
}

TEST_CASE("products big enough to be shared between threads are right along both sides") {
  check_gemm<float>(500, 130, 130, false, true, 1, 0, 0);
  check_gemm<float>(130, 500, 130, true, false, 1, 1, 5);
}

TEST_CASE("an empty inner dimension leaves beta c, and empty results are fine") {
  check_gemm<float>(3, 4, 0, false, false, 1, 0, 0);
  check_gemm<float>(3, 4, 0, true, true, 1, 0.5f, 1);
  check_gemm<double>(0, 4, 3, false, false, 1, 0, 0);
  check_gemm<double>(3, 0, 3, false, false, 1, 0, 0);
}

template <class T>
std::vector<T> product(int64_t m, int64_t n, int64_t k, bool ta, bool tb, int64_t shift = 0) {
  const Operand<T> a(m, k, ta, 0, 1), b(k, n, tb, 0, 2);
  std::vector<T> moved_a(size_t(m * k + shift)), moved_b(size_t(k * n + shift));
  std::copy_n(a.memory.begin(), m * k, moved_a.begin() + shift);
  std::copy_n(b.memory.begin(), k * n, moved_b.begin() + shift);
  std::vector<T> c(size_t(m * n + shift));
  gemm<T>(m, n, k, T(1), {moved_a.data() + shift, a.stride, ta},
          {moved_b.data() + shift, b.stride, tb}, T(0), c.data() + shift, n);
  c.erase(c.begin(), c.begin() + shift);
  return c;
}

TEST_CASE_TEMPLATE("gemm gives the same bits for any number of threads", T, float, double) {
  const int before = thread_count();
  for (auto [m, n, k] : {std::array<int64_t, 3>{700, 150, 90}, {90, 1200, 70}, {2048, 64, 64}})
    for (bool t : {false, true}) {
      set_thread_count(1);
      const auto one = product<T>(m, n, k, t, !t);
      for (int threads : {2, 3}) {
        set_thread_count(threads);
        const auto several = product<T>(m, n, k, t, !t);
        CHECK(std::memcmp(one.data(), several.data(), one.size() * sizeof(T)) == 0);
      }
    }
  set_thread_count(before);
}

TEST_CASE_TEMPLATE("gemm gives the same bits wherever its operands lie in memory", T, float,
                   double) {
  for (auto [m, n, k] : {std::array<int64_t, 3>{1, 1, 100},
                         {3, 4, 5},
                         {1, 64, 33},
                         {64, 1, 33},
                         {2, 3, 9},
                         {50, 60, 70}})
    for (bool ta : {false, true})
      for (bool tb : {false, true}) {
        const auto& rows = m;
        CAPTURE(rows);
        const auto& columns = n;
        CAPTURE(columns);
        const auto& depth = k;
        CAPTURE(depth);
        CAPTURE(ta);
        CAPTURE(tb);
        const auto here = product<T>(m, n, k, ta, tb);
        for (int64_t shift : {1, 2, 3, 7})
          CHECK(product<T>(m, n, k, ta, tb, shift) == here);
      }
}

TEST_CASE("set_thread_count needs at least one thread") {
  CHECK_THROWS_WITH_AS(set_thread_count(0), "set_thread_count: needs at least 1 thread, got 0",
                       Error);
  CHECK(thread_index() == 0);
}

}  // namespace
}  // namespace minim
