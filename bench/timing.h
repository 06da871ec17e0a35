#pragma once

#include <algorithm>
#include <chrono>
#include <vector>

// What all benchmark programs measure with.
namespace minim::bench {

// Seconds since some moment.
inline double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// The middle one of some values, at least one; of an even number the upper.
inline double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

}  // namespace minim::bench
