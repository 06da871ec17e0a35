#pragma once

#include <cstdint>

#include "core/math.h"

// What Adam's averages, which begin at zero, are corrected by; private to optim/.
namespace minim::optim {

// The corrections of a step as they follow from its number, t.
struct AdamCorrections {
  double lr, beta1, beta2;
  int64_t step;
  bool operator==(const AdamCorrections&) const = default;

  // lr / (1 - beta1^t)
  HD double step_size() const { return lr / (1.0 - math::pow(beta1, double(step))); }
  // 1 / sqrt(1 - beta2^t)
  HD double inverse_c2() const { return 1.0 / math::sqrt(1.0 - math::pow(beta2, double(step))); }
  // Those of an earlier step.
  HD AdamCorrections earlier(int64_t steps) const { return {lr, beta1, beta2, step - steps}; }
};

}  // namespace minim::optim
