#include "train/statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <vector>

#include "core/error.h"

namespace minim::train {

Summary summarize(std::span<const double> sample) {
  Summary summary{.count = int64_t(sample.size())};
  if (sample.empty()) return {0, std::nan(""), std::nan("")};
  for (const double x : sample)
    summary.mean += x / double(sample.size());
  double squares = 0;
  for (const double x : sample)
    squares += (x - summary.mean) * (x - summary.mean);
  summary.sd = sample.size() < 2 ? std::nan("") : std::sqrt(squares / double(sample.size() - 1));
  return summary;
}

double students_t_p_value(double t, int64_t freedom) {
  check(freedom >= 1, "students_t_p_value: {} degrees of freedom, must be at least 1", freedom);
  const double angle = std::atan(std::abs(t) / std::sqrt(double(freedom)));
  const double sine = std::sin(angle), cosine = std::cos(angle);
  // The series in powers of the cosine; each term from the one before.
  const bool odd = freedom % 2 == 1;
  double term = odd ? cosine : 1.0, sum = 0;
  for (int64_t k = odd ? 1 : 0; k < freedom - 1; k += 2) {
    sum += term;
    term *= cosine * cosine * double(k + 1) / double(k + 2);
  }
  const double inside = odd ? 2 / std::numbers::pi * (angle + sine * sum) : sine * sum;
  return std::isnan(t) ? t : std::clamp(1 - inside, 0.0, 1.0);
}

double students_t_quantile(double p, int64_t freedom) {
  check(p > 0 && p < 1, "students_t_quantile: p is {}, must be between 0 and 1", p);
  double low = 0, high = 1;
  while (students_t_p_value(high, freedom) > p && high < 1e300)
    high *= 2;
  for (int halving = 0; halving < 80; ++halving) {
    const double middle = (low + high) / 2;
    (students_t_p_value(middle, freedom) > p ? low : high) = middle;
  }
  return high;
}

double MeanDifference::p_value() const {
  // 0 / 0 stands for equal samples without spread: nothing is shown.
  const double t = error > 0   ? mean / error
                   : mean == 0 ? 0
                               : std::numeric_limits<double>::infinity();
  return students_t_p_value(t, freedom);
}

MeanDifference paired_difference(std::span<const double> x, std::span<const double> y) {
  check(x.size() == y.size() && x.size() >= 2,
        "paired_difference: samples of {} and {}, must be equally many, at least two", x.size(),
        y.size());
  std::vector<double> differences(x.size());
  std::ranges::transform(x, y, differences.begin(), std::minus());
  const Summary d = summarize(differences);
  return {d.mean, d.sd / std::sqrt(double(d.count)), d.count - 1};
}

MeanDifference welch_difference(std::span<const double> x, std::span<const double> y) {
  check(x.size() >= 2 && y.size() >= 2,
        "welch_difference: samples of {} and {}, must be at least two", x.size(), y.size());
  const Summary a = summarize(x), b = summarize(y);
  const double va = a.sd * a.sd / double(a.count), vb = b.sd * b.sd / double(b.count);
  const double freedom =
      (va + vb) * (va + vb) / (va * va / double(a.count - 1) + vb * vb / double(b.count - 1));
  return {a.mean - b.mean, std::sqrt(va + vb),
          std::isfinite(freedom) ? std::max<int64_t>(int64_t(freedom), 1) : a.count + b.count - 2};
}

}  // namespace minim::train
