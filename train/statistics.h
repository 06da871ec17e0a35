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

// The |t| at which that probability is p, 0 < p < 1.
double students_t_quantile(double p, int64_t freedom);

// What two samples of at least two say about the difference of their means.
struct MeanDifference {
  double mean = 0;      // of x less that of y
  double error = 0;     // standard error of the mean
  int64_t freedom = 1;  // degrees of it

  // Two-sided, for equal means.
  double p_value() const;
  // Half the width of the interval around the mean that misses the true one with probability p.
  double reach(double p) const { return error * students_t_quantile(p, freedom); }
};
// Of pairs (x[i], y[i]).
MeanDifference paired_difference(std::span<const double> x, std::span<const double> y);
// Of independent samples, whose spread may differ (Welch; degrees of freedom rounded down).
MeanDifference welch_difference(std::span<const double> x, std::span<const double> y);

}  // namespace minim::train
