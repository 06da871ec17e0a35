#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "core/dtype.h"
#include "core/portable.h"
#include "optim/adam_corrections.h"

// One weight of an 8-bit Adam's step, in operations that are rounded alike everywhere, so that a
// device's codes are the CPU's: products that are added to something are said to be fused, which
// leaves no choice to compilers. Private to optim/.
namespace minim::optim {

inline constexpr float largest_gradient = 1e18f;  // its square is finite in f32, and so are sums

// a * b + c, rounded once. A CPU without such an instruction rounds twice, and its codes may be
// others in rare cases: the function that libraries have instead is a hundred times slower.
template <class R>
HD R fused(R a, R b, R c) {
#if defined(__CUDA_ARCH__) || defined(__FMA__) || defined(__aarch64__)
  return std::fma(a, b, c);
#else
  return a * b + c;
#endif
}

template <class T>
struct Adam8bitFormula {
  using R = Compute<T>;
  float beta1, weight1, beta2, weight2;  // b1, 1 - b1, b2, 1 - b2
  R decay;                               // 1 - lr * weight_decay
  R step_size, inverse_c2, eps;          // lr / (1 - b1^t), 1 / sqrt(1 - b2^t)
  AdamCorrections corrections;           // where the first two of those come from

  // That of an earlier step.
  HD Adam8bitFormula earlier(int64_t steps) const {
    Adam8bitFormula formula = *this;
    formula.corrections = corrections.earlier(steps);
    formula.step_size = R(formula.corrections.step_size());
    formula.inverse_c2 = R(formula.corrections.inverse_c2());
    return formula;
  }

  // The new weight, from the old one, its gradient and the moments, which are moved.
  HD R operator()(R p, float grad, float& m, float& v) const {
    m = fused(beta1, m, weight1 * grad);
    v = fused(beta2, v, weight2 * grad * grad);
    return fused(p, decay, -change(m, v));
  }
  // The same where the gradient may be unsound; then nothing is changed. Choosing between numbers
  // is faster than choosing whether to store.
  HD R operator()(R p, float given, float& m, float& v, bool sound) const {
    const float grad = sound ? given : 0.0f;
    m = fused(sound ? beta1 : 1.0f, m, weight1 * grad);
    v = fused(sound ? beta2 : 1.0f, v, weight2 * grad * grad);
    const R moved = change(m, v);
    return fused(p, sound ? decay : R(1), sound ? -moved : R(0));
  }
  bool operator==(const Adam8bitFormula&) const = default;

 private:
  HD R change(float m, float v) const {
    return step_size * R(m) / fused(R(std::sqrt(R(v))), inverse_c2, eps);
  }
};

// What the numbers of a block are divided by, from their largest magnitude.
HD inline float divisor_of(float absmax, bool raise_scales) {
  if (raise_scales) return absmax < 1e-38f ? 1e-38f : absmax;
  return absmax == 0.0f ? 1.0f : absmax;
}

// x / divisor. Of a positive x it may underflow, but is positive still: no less than the smallest
// float.
HD inline float positive_quotient(float x, float divisor) {
  const int32_t quotient = std::bit_cast<int32_t>(x / divisor);
  const int32_t least = x > 0.0f ? 1 : std::numeric_limits<int32_t>::min();
  return std::bit_cast<float>(quotient > least ? quotient : least);
}

}  // namespace minim::optim
