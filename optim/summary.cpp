#include "optim/summary.h"

#include <algorithm>
#include <cmath>

namespace minim::optim {

Summary summarize(const Tensor& x) {
  Summary summary;
  summary.elements = x.numel();
  double sum = 0, squares = 0;
  int64_t finite = 0;
  for (const double value : x.to_vector<double>()) {
    if (!std::isfinite(value)) {
      ++summary.not_finite;
      continue;
    }
    summary.zeros += value == 0;
    summary.min = finite == 0 ? value : std::min(summary.min, value);
    summary.max = finite == 0 ? value : std::max(summary.max, value);
    sum += value;
    squares += value * value;
    ++finite;
  }
  if (finite > 0) {
    summary.mean = sum / double(finite);
    summary.rms = std::sqrt(squares / double(finite));
  }
  return summary;
}

Histogram histogram(const Tensor& x, int bins) {
  check(bins > 0, "histogram: {} bins, must be at least 1", bins);
  std::vector<double> values = x.to_vector<double>();
  std::erase_if(values, [](double value) { return !std::isfinite(value); });
  Histogram result;
  result.counts.resize(size_t(bins));
  result.logarithmic = std::ranges::none_of(values, [](double value) { return value < 0; });
  if (result.logarithmic) std::erase(values, 0.0);
  if (values.empty()) return result;
  const auto [low, high] = std::ranges::minmax_element(values);
  result.low = *low;
  result.high = *high;
  const auto place = [&](double value) { return result.logarithmic ? std::log10(value) : value; };
  const double from = place(result.low), width = place(result.high) - from;
  for (const double value : values) {
    const double bin = width > 0 ? (place(value) - from) / width * bins : 0;
    ++result.counts[size_t(std::clamp(bin, 0.0, double(bins - 1)))];
  }
  return result;
}

}  // namespace minim::optim
