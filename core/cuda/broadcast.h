#pragma once

#include <cstdint>

#include "core/broadcast.h"
#include "core/cuda/launchers.h"

// launch_broadcast of core/launch.h on a device.
namespace minim::cuda {

// A BroadcastPlan as a kernel's argument.
template <int N>
struct BroadcastStrides {
  int rank = 0;
  int64_t extents[Shape::max_rank], steps[N][Shape::max_rank];

  explicit BroadcastStrides(const BroadcastPlan<N>& plan) : rank(plan.shape.rank()) {
    for (int d = 0; d < Shape::max_rank; ++d) {
      extents[d] = d < rank ? plan.shape[d] : 1;
      for (int k = 0; k < N; ++k)
        steps[k][d] = d < rank ? plan.strides[k][d] : 0;
    }
  }
};

// Runs a kernel of offsets for an element's number. Index is 32 bits wide where that is enough: a
// device divides 64 bits slowly.
template <class Index, int N, class Kernel>
struct AtOffsets {
  Kernel kernel;
  BroadcastStrides<N> strides;

  HD void operator()(int64_t i) const {
    Index rest = Index(i);
    Offsets<N> at = {};
    for (int d = strides.rank - 1; d >= 0; --d) {
      const Index extent = Index(strides.extents[d]);
      const Index place = d > 0 ? rest % extent : rest;
      rest /= extent;
      for (int k = 0; k < N; ++k)
        at.at[k] += int64_t(place) * strides.steps[k][d];
    }
    kernel(at);
  }
};

// The same where all operands are walked from first to last element.
template <int N, class Kernel>
struct AtAlikeOffsets {
  Kernel kernel;

  HD void operator()(int64_t i) const {
    Offsets<N> at;
    for (int k = 0; k < N; ++k)
      at.at[k] = i;
    kernel(at);
  }
};

// Runs kernel(offsets) for each element of the plan's shape.
template <int N, class Kernel>
void launch_broadcast(const BroadcastPlan<N>& plan, const Kernel& kernel, cudaStream_t stream) {
  const int64_t n = plan.shape.numel();
  const BroadcastStrides<N> strides(plan);
  if (plan.contiguous())
    launch_elements(n, AtAlikeOffsets<N, Kernel>{kernel}, stream);
  else if (n <= INT32_MAX)
    launch_elements(n, AtOffsets<uint32_t, N, Kernel>{kernel, strides}, stream);
  else
    launch_elements(n, AtOffsets<uint64_t, N, Kernel>{kernel, strides}, stream);
}

}  // namespace minim::cuda
