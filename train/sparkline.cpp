#include "train/sparkline.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

namespace minim::train {

namespace {

constexpr std::array<const char*, 8> blocks = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};

const char* block_at(double fraction) {
  return blocks[size_t(std::clamp(fraction * 8, 0.0, 7.0))];
}

}  // namespace

std::string sparkline(std::span<const double> values, size_t columns) {
  std::vector<double> shown;
  const size_t n = std::min(values.size(), columns);
  for (size_t c = 0; c < n; ++c) {
    const size_t begin = c * values.size() / n, end = (c + 1) * values.size() / n;
    double sum = 0;
    for (size_t i = begin; i < end; ++i)
      sum += values[i];
    shown.push_back(sum / double(end - begin));
  }
  double low = INFINITY, high = -INFINITY;
  for (const double value : shown) {
    if (!std::isfinite(value)) continue;
    low = std::min(low, value);
    high = std::max(high, value);
  }
  std::string text;
  for (const double value : shown)
    text += !std::isfinite(value) ? "×"
            : low == high         ? "▄"
                                  : block_at((value - low) / (high - low));
  return text;
}

std::string bars(std::span<const int64_t> counts) {
  const int64_t most = counts.empty() ? 0 : *std::ranges::max_element(counts);
  std::string text;
  for (const int64_t count : counts)
    text += count == 0 ? " " : block_at(double(count) / double(most));
  return text;
}

}  // namespace minim::train
