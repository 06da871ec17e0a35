#pragma once

#include <cstdint>
#include <limits>

#include "core/portable.h"

namespace minim {

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
  // How many of `most` elements belong to one worker: the size of an array for each_own.
  template <int most>
  static constexpr int own = most;
  // f(i, k) for each i in [0, n), n at most `most`: i is the k-th of its worker's elements, and
  // what a kernel keeps of it from one call to the next lies in an array at k.
  template <int most, class F>
  HD void each_own(int64_t n, const F& f) const {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i)
      f(i, i);
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

}  // namespace minim
