#pragma once

#include <cstdint>
#include <limits>

#include "core/cuda/launch.h"

// The threads that share a row of a row kernel on the device, with the interface of SerialGroup
// (core/launch.h). Element i always belongs to the same thread: a row kernel may read in one each()
// what it wrote at the same i in another, and nothing else that its group wrote.
namespace minim::cuda {

inline constexpr int warp_lanes = 32;

// Combines one value of each lane in a fixed order; all lanes get the result.
template <class R, class Op>
__device__ R reduce_warp(R v, const Op& op) {
  for (int step = warp_lanes / 2; step > 0; step /= 2)
    v = op(v, __shfl_xor_sync(0xffffffffu, v, step));
  return v;
}

struct SumOp {
  template <class R>
  __device__ R operator()(R a, R b) const {
    return a + b;
  }
};
struct MaxOp {  // NaN if either is
  template <class R>
  __device__ R operator()(R a, R b) const {
    return a > b || a != a ? a : b;
  }
};

// What the two groups share; Derived has index(), size() and combine(v, identity, op).
template <class Derived>
struct ThreadGroup {
  __device__ bool leader() const { return self().index() == 0; }
  // f(i) for each i in [0, n).
  template <class F>
  __device__ void each(int64_t n, const F& f) const {
    for (int64_t i = self().index(); i < n; i += self().size())
      f(i);
  }
  // How many of `most` elements belong to one thread: the size of an array for each_own.
  template <int most>
  static constexpr int own = (most + warp_lanes - 1) / warp_lanes;
  // f(i, k) for each i in [0, n), n at most `most`: i is the k-th of its thread's elements, and
  // what a kernel keeps of it from one call to the next lies in an array at k. The loop is
  // unrolled, so that such arrays are registers.
  template <int most, class F>
  __device__ void each_own(int64_t n, const F& f) const {
    for (int k = 0; k < own<most>; ++k)
      if (const int64_t i = self().index() + int64_t(k) * self().size(); i < n) f(i, k);
  }
  // Sum of f(i) in the type that f returns; 0 for n = 0.
  template <class F>
  __device__ auto sum(int64_t n, const F& f) const {
    using R = decltype(f(int64_t()));
    return reduce<R>(n, f, R(0), SumOp());
  }
  // Largest f(i); NaN if any is NaN; -infinity for n = 0.
  template <class F>
  __device__ auto max(int64_t n, const F& f) const {
    using R = decltype(f(int64_t()));
    return reduce<R>(n, f, -std::numeric_limits<R>::infinity(), MaxOp());
  }

 private:
  __device__ const Derived& self() const { return static_cast<const Derived&>(*this); }
  template <class R, class F, class Op>
  __device__ R reduce(int64_t n, const F& f, R identity, const Op& op) const {
    R v = identity;
    for (int64_t i = self().index(); i < n; i += self().size())
      v = op(v, f(i));
    return self().combine(v, identity, op);
  }
};

// A warp, for short rows.
struct WarpGroup : ThreadGroup<WarpGroup> {
  __device__ int index() const { return int(threadIdx.x) % warp_lanes; }
  __device__ int size() const { return warp_lanes; }
  template <class R, class Op>
  __device__ R combine(R v, R, const Op& op) const {
    return reduce_warp(v, op);
  }
};

// A block of at most 1024 threads, a multiple of 32.
struct BlockGroup : ThreadGroup<BlockGroup> {
  __device__ int index() const { return int(threadIdx.x); }
  __device__ int size() const { return int(blockDim.x); }
  template <class R, class Op>
  __device__ R combine(R v, R identity, const Op& op) const {
    SHARED(R, partials, [warp_lanes]);
    const int lane = index() % warp_lanes;
    v = reduce_warp(v, op);
    if (lane == 0) partials[index() / warp_lanes] = v;
    __syncthreads();
    v = reduce_warp(lane < size() / warp_lanes ? partials[lane] : identity, op);
    __syncthreads();  // before the next reduction writes
    return v;
  }
};

}  // namespace minim::cuda
