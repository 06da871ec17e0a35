#pragma once

#include <limits>
#include <string_view>

#include "core/error.h"

// What rules ask of their options; private to optim/.
namespace minim::optim {

// Finite and at least 0; NaN is refused.
inline void check_not_negative(std::string_view rule, std::string_view key, double value) {
  check(value >= 0 && value <= std::numeric_limits<double>::max(),
        "{}: {} is {}, must be finite and not negative", rule, key, value);
}

// In [0, 1), as the decay of a moving average must be.
inline void check_beta(std::string_view rule, std::string_view key, double value) {
  check(value >= 0 && value < 1, "{}: {} is {}, must be at least 0 and less than 1", rule, key,
        value);
}

}  // namespace minim::optim
