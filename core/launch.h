#pragma once

#if defined(MINIM_WITH_CUDA) && !defined(__CUDACC__)
#error "This file launches kernels: list it in kernel_sources, so that nvcc compiles it."
#endif

#include <cstdint>

#include "core/parallel.h"
#include "core/portable.h"
#include "core/tensor.h"

// The three ways to run a kernel. A kernel is a struct at namespace scope whose operator() is
// marked HD: it is compiled for the CPU here, and the same lines for the device in a CUDA build.
namespace minim {

// Elements that one thread takes at a time. Less is not worth waking another thread for.
inline constexpr int64_t element_grain = 32768;

// Runs kernel(i) for each i in [0, n).
template <class Kernel>
void launch_elements(Device, int64_t n, const Kernel& kernel) {
  parallel_chunks(n, element_grain, [&kernel](int64_t begin, int64_t end) {
    const Kernel local = kernel;  // lets the compiler keep the kernel's fields in registers
#pragma GCC ivdep
    for (int64_t i = begin; i < end; ++i)
      local(i);
  });
}

// The shape of an element-wise loop over N operands, each with its own strides (0 where it is
// broadcast). Dimensions that all operands step through alike are merged.
template <int N>
struct BroadcastPlan {
  Shape shape;
  Shape strides[N];

  // Operands' shapes must broadcast to `shape`.
  BroadcastPlan(const Shape& shape, const Tensor* const (&operands)[N]);

  // No operand needs index arithmetic: all are walked from first to last element.
  bool contiguous() const {
    if (shape.rank() > 1) return false;
    for (const Shape& s : strides)
      if (shape.rank() == 1 && s[0] != 1) return false;
    return true;
  }
};

// Element offsets of one element in each of the N operands.
template <int N>
struct Offsets {
  int64_t at[N];
  HD int64_t operator[](int k) const { return at[k]; }
};

// Runs kernel(offsets) for each element of the plan's shape.
template <int N, class Kernel>
void launch_broadcast(Device, const BroadcastPlan<N>& plan, const Kernel& kernel);

// One worker on the CPU does a whole row. Sums keep 16 partial sums: they vectorise without
// -ffast-math and round less than one running sum.
struct SerialGroup {
  static constexpr int lanes = 16;

  HD bool leader() const { return true; }
  // f(i) for each i in [0, n).
  template <class F>
  HD void each(int64_t n, const F& f) const {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i)
      f(i);
  }
  // Sum of f(i) in the type that f returns; 0 for n = 0.
  template <class F>
  HD auto sum(int64_t n, const F& f) const {
    using R = decltype(f(int64_t()));
    return reduce<R>(n, f, R(0), [](R a, R b) { return a + b; });
  }
  // Largest f(i); NaN if any is NaN; -infinity for n = 0.
  template <class F>
  HD auto max(int64_t n, const F& f) const {
    using R = decltype(f(int64_t()));
    return reduce<R>(n, f, -std::numeric_limits<R>::infinity(),
                     [](R a, R b) { return a > b || a != a ? a : b; });
  }

 private:
  template <class R, class F, class Op>
  HD R reduce(int64_t n, const F& f, R identity, const Op& op) const {
    R partial[lanes];
    for (int k = 0; k < lanes; ++k)
      partial[k] = identity;
    int64_t i = 0;
    for (; i + lanes <= n; i += lanes)
      for (int k = 0; k < lanes; ++k)
        partial[k] = op(partial[k], f(i + k));
    for (int k = 0; i < n; ++i, ++k)
      partial[k] = op(partial[k], f(i));
    for (int width = lanes / 2; width > 0; width /= 2)
      for (int k = 0; k < width; ++k)
        partial[k] = op(partial[k], partial[k + width]);
    return partial[0];
  }
};

// Runs kernel(group, row) for each row in [0, rows); `row_size` elements of work lie in each.
template <class Kernel>
void launch_rows(Device, int64_t rows, int64_t row_size, const Kernel& kernel) {
  const int64_t grain =
      row_size >= element_grain ? 1 : element_grain / (row_size > 0 ? row_size : 1);
  parallel_chunks(rows, grain, [&kernel](int64_t begin, int64_t end) {
    const Kernel local = kernel;
    for (int64_t row = begin; row < end; ++row)
      local(SerialGroup{}, row);
  });
}

// --- implementation ---

template <int N>
BroadcastPlan<N>::BroadcastPlan(const Shape& full, const Tensor* const (&operands)[N]) {
  Shape all[N];
  for (int k = 0; k < N; ++k) {
    const Tensor& t = *operands[k];
    const int lead = full.rank() - t.rank();
    for (int i = 0; i < full.rank(); ++i)
      all[k].push_back(i < lead || t.shape()[i - lead] == 1 ? 0 : t.strides()[i - lead]);
  }
  for (int i = 0; i < full.rank(); ++i) {
    if (full[i] == 1) continue;
    bool merge = shape.rank() > 0;
    for (int k = 0; merge && k < N; ++k)
      merge = strides[k].back() == all[k][i] * full[i];
    if (merge) {
      shape.back() *= full[i];
      for (int k = 0; k < N; ++k)
        strides[k].back() = all[k][i];
    } else {
      shape.push_back(full[i]);
      for (int k = 0; k < N; ++k)
        strides[k].push_back(all[k][i]);
    }
  }
}

template <int N, class Kernel>
void launch_broadcast(Device, const BroadcastPlan<N>& plan, const Kernel& kernel) {
  const int rank = plan.shape.rank();
  const int64_t inner = rank > 0 ? plan.shape.back() : 1;
  if (inner == 0) return;
  const int64_t outer = plan.shape.numel() / inner;
  Offsets<N> step;
  bool unit = true;
  for (int k = 0; k < N; ++k) {
    step.at[k] = rank > 0 ? plan.strides[k].back() : 0;
    unit = unit && step.at[k] == 1;
  }
  // A long single row is cut as well, so that it is shared between threads.
  const int64_t piece = outer == 1 ? element_grain : inner;
  const int64_t pieces = (inner + piece - 1) / piece;
  const int64_t grain = piece >= element_grain ? 1 : element_grain / piece;
  parallel_chunks(outer * pieces, grain, [&](int64_t begin, int64_t end) {
    const Kernel local = kernel;
    for (int64_t c = begin; c < end; ++c) {
      int64_t index = c / pieces;
      const int64_t first = c % pieces * piece;
      const int64_t last = first + piece < inner ? first + piece : inner;
      Offsets<N> base;
      for (int k = 0; k < N; ++k)
        base.at[k] = 0;
      for (int d = rank - 2; d >= 0; --d) {
        const int64_t i = index % plan.shape[d];
        index /= plan.shape[d];
        for (int k = 0; k < N; ++k)
          base.at[k] += i * plan.strides[k][d];
      }
      if (unit) {
#pragma GCC ivdep
        for (int64_t j = first; j < last; ++j) {
          Offsets<N> at;
          for (int k = 0; k < N; ++k)
            at.at[k] = base.at[k] + j;
          local(at);
        }
      } else {
        for (int64_t j = first; j < last; ++j) {
          Offsets<N> at;
          for (int k = 0; k < N; ++k)
            at.at[k] = base.at[k] + j * step.at[k];
          local(at);
        }
      }
    }
  });
}

}  // namespace minim
