#pragma once

#include <cstdint>
#include <span>

namespace minim::train {

// Size, mean and standard deviation (n - 1; NaN for fewer than two) of a sample.
struct Summary {
  int64_t count = 0;
  double mean = 0, sd = 0;
};
Summary summarize(std::span<const double> sample);

// Probability that Student's t with `freedom` >= 1 degrees is at least |t| from 0, on either side.
// Closed form of Abramowitz & Stegun 26.7.3 and 26.7.4; NaN where t is.
double students_t_p_value(double t, int64_t freedom);

// Two-sided p-value for equal means of pairs (x[i], y[i]), at least two.
double paired_p_value(std::span<const double> x, std::span<const double> y);
// The same of two independent samples, at least two each, whose spread may differ (Welch; degrees
// of freedom rounded down).
double welch_p_value(std::span<const double> x, std::span<const double> y);

}  // namespace minim::train
