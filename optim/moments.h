#pragma once

#include <cstdint>
#include <string_view>

#include "optim/any_optimizer.h"

// The moments of Adam, AdamW and their 8-bit forms, whatever they are kept in.
namespace minim::optim {

struct Moments {
  Tensor exp_avg, exp_avg_sq;  // of the parameter's shape; undefined before its first gradient
  int64_t step = 0;
};

// The moments of one parameter as f32 (f64 where the optimizer keeps f64), decoded where they are
// codes. Throws for an optimizer that keeps others, and where there is no such parameter.
Moments moments_of(const AnyOptimizer& optimizer, std::string_view parameter);

// Gives `to` the moments and steps of `from`, for the same parameters: a run goes on in 8 bits, or
// in f32 again. What becomes codes is rounded to them; all else is exact. Options stay each
// optimizer's own. Throws, and changes nothing, for amsgrad, whose third moment has no place in 8
// bits, and for what moments_of() throws.
void copy_moments(const AnyOptimizer& from, AnyOptimizer& to);

}  // namespace minim::optim
