#pragma once

#if defined(MINIM_HOST_ONLY)
#error "This file launches kernels: list it in kernel_sources, so that nvcc compiles it."
#endif

#include <cstdint>

#include "core/broadcast.h"
#include "core/parallel.h"
#include "core/portable.h"
#include "core/row_group.h"
#include "core/tensor.h"

#if defined(MINIM_WITH_CUDA)
#include "core/cuda/broadcast.h"
#include "core/cuda/device.h"
#include "core/cuda/launchers.h"
#endif

// The three ways to run a kernel. A kernel is a struct at namespace scope whose operator() is
// marked HD: it is compiled for the CPU here, and the same lines for the device in a CUDA build.
namespace minim {

// Runs kernel(i) for each i in [0, n).
template <class Kernel>
void launch_elements([[maybe_unused]] Device device, int64_t n, const Kernel& kernel) {
#if defined(MINIM_WITH_CUDA)
  if (device.is_cuda()) return cuda::launch_elements(n, kernel, cuda::stream(device));
#endif
  parallel_chunks(n, element_grain, [&kernel](int64_t begin, int64_t end) {
    const Kernel local = kernel;  // lets the compiler keep the kernel's fields in registers
#pragma GCC ivdep
    for (int64_t i = begin; i < end; ++i)
      local(i);
  });
}

// Runs kernel(offsets) for each element of the plan's shape.
template <int N, class Kernel>
void launch_broadcast(Device device, const BroadcastPlan<N>& plan, const Kernel& kernel);

// Runs kernel(group, row) for each row in [0, rows); `row_size` elements of work lie in each.
template <class Kernel>
void launch_rows([[maybe_unused]] Device device, int64_t rows, int64_t row_size,
                 const Kernel& kernel) {
#if defined(MINIM_WITH_CUDA)
  if (device.is_cuda()) return cuda::launch_rows(rows, row_size, kernel, cuda::stream(device));
#endif
  const int64_t grain =
      row_size >= element_grain ? 1 : element_grain / (row_size > 0 ? row_size : 1);
  parallel_chunks(rows, grain, [&kernel](int64_t begin, int64_t end) {
    const Kernel local = kernel;
    for (int64_t row = begin; row < end; ++row)
      local(SerialGroup{}, row);
  });
}

// --- implementation ---

template <int N, class Kernel>
void launch_broadcast([[maybe_unused]] Device device, const BroadcastPlan<N>& plan,
                      const Kernel& kernel) {
#if defined(MINIM_WITH_CUDA)
  if (device.is_cuda()) return cuda::launch_broadcast(plan, kernel, cuda::stream(device));
#endif
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
