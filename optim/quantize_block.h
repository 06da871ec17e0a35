#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "optim/adam8bit_formula.h"
#include "optim/code_map.h"
#include "optim/quantize.h"

// One block at a time, in loops that vectorise; private to optim/.
namespace minim::optim {

inline void dequantize_block(const uint8_t* codes, float absmax, const float* values, float* x,
                             int64_t n) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i)
    x[i] = values[codes[i]] * absmax;
}

// The largest magnitude of some floats, and NaN if any of them is: the bits of floats that are not
// negative order as the floats do, and those of NaN are larger than infinity's.
class LargestMagnitude {
 public:
  void see(float x) { bits_ = std::max(bits_, std::bit_cast<int32_t>(x) & 0x7FFFFFFF); }
  float value() const { return std::bit_cast<float>(bits_); }

 private:
  int32_t bits_ = 0;
};

// Writes the codes of a block, whose largest magnitude is given, and returns the scale to be kept
// for it.
inline float quantize_block(const float* x, float absmax, const CodeMap& map, bool is_last,
                            uint8_t* codes, int64_t n) {
  const float divisor = divisor_of(absmax, map.rules().raise_scales);
  if (map.rules().raise_scales && is_last) absmax = divisor;
  const uint32_t* search = map.search();
  const uint32_t flip = map.flip();
  // Keys in two halves: indices that lie in memory are looked up faster than those in registers.
  uint16_t upper[largest_block], lower[largest_block];
  const auto split = [&](int64_t i, float quotient) {
    const uint32_t key = CodeMap::key_of(quotient, flip);
    upper[i] = uint16_t(key >> 16);
    lower[i] = uint16_t(key);
  };
  if (map.rules().floor && divisor > 1.0f) {
    for (int64_t i = 0; i < n; ++i)
      split(i, positive_quotient(x[i], divisor));
  } else {
    for (int64_t i = 0; i < n; ++i)
      split(i, x[i] / divisor);
  }
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i)
    codes[i] = CodeMap::find(search, upper[i], lower[i]);
  return absmax;
}

}  // namespace minim::optim
