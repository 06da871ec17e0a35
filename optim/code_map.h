#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <string_view>
#include <vector>

#include "core/portable.h"

namespace minim::optim {

// What each of the 256 codes of a byte stands for, between -1 and 1, and the nearest code to any
// number. The boundary between two neighbours is their midpoint, rounded to f32.
class CodeMap {
 public:
  using Values = std::array<float, 256>;

  enum class Order {
    ascending,      // values grow with the code
    sign_magnitude  // the upper bit is the sign, the others grow with the magnitude: FP8
  };
  enum class Ties { to_even, to_lower };  // which code a number on a boundary gets
  struct Rules {
    Order order = Order::ascending;
    Ties ties = Ties::to_even;
    // A positive number never gets the code of zero, however small it is.
    bool floor = false;
    // Scales are not below 1e-38, as in bitsandbytes, which keeps the raised scale for the last
    // block alone and the true one for all others.
    bool raise_scales = false;
    uint8_t last = 255;  // largest code that numbers get; in sign_magnitude of each sign
    uint8_t nan = 255;   // the code of NaN
  };

  // Values must be in the order that the rules say, neighbours no closer than 1/256 of their size.
  CodeMap(const Values& values, const Rules& rules);

  const Values& values() const { return values_; }
  const Rules& rules() const { return rules_; }
  float value(uint8_t code) const { return values_[code]; }

  // The code nearest to x; beyond the ends that of the nearer end.
  uint8_t nearest(float x) const {
    const uint32_t key = key_of(x, flip_);
    return find(search_.data(), uint16_t(key >> 16), uint16_t(key));
  }

  // The search, for loops over many numbers, takes one look-up and no branch. The upper 16 bits of
  // a float (sign, exponent, 7 bits of the mantissa) pick a cell so narrow that it holds one
  // boundary at most. The cell's entry has its lower code in the upper half, and in the lower half
  // the complement of the boundary's remaining 16 bits, so that adding those of the float carries
  // into the code where it lies beyond the boundary.
  HD static uint8_t find(const uint32_t* search, uint16_t upper, uint16_t lower) {
    return uint8_t((search[upper] + lower) >> 16);
  }
  // The bits of x in an order that grows with the code.
  HD static uint32_t key_of(float x, uint32_t flip) {
    const uint32_t bits = std::bit_cast<uint32_t>(x);
    return bits ^ (uint32_t(int32_t(bits) >> 31) & flip);
  }
  const uint32_t* search() const { return search_.data(); }
  // What key_of() flips in negative numbers.
  uint32_t flip() const { return flip_; }

 private:
  void fill_cells(uint32_t first_cell, uint32_t last_cell, uint8_t lowest, uint8_t highest);
  // The largest key that still gets `code` rather than code + 1.
  uint32_t last_key_of(uint8_t code) const;

  Values values_;
  Rules rules_;
  uint32_t flip_;
  std::vector<uint32_t> search_;  // 65,536 cells
};

// Names for code_map(), without "bitsandbytes".
std::vector<std::string_view> code_map_names();

// The map of that name, made once per program; throws for a name that is none. Each has a signed
// form and one for numbers that are not negative; `floor` as in CodeMap::Rules.
//
//   dynamic       (Dettmers et al., "8-bit optimizers via block-wise quantization", 2022) Decades
//                 from 1e-7 to 1; the i-th from below has 2^i values of each sign, or 2^(i+1) where
//                 there is no sign, and each lies in the middle of an equal part of its decade.
//                 There are 0 and 1; there is no -1.
//   linear        Equal steps: 255 values from -1 to 1 (code 127 is 0), or 256 from 0 to 1.
//   fp8_e4m3      The 8-bit floats of the Open Compute Project (OFP8), divided by the largest,
//   which fp8_e5m2      is 448 or 57344. The code is the float's bit pattern; signed or not is the
//   same. bitsandbytes  dynamic as bitsandbytes evaluates it in f32, some values an ulp or two off;
//   ties
//                 to the lower code.
const CodeMap& code_map(std::string_view name, bool is_signed, bool floor = false);

}  // namespace minim::optim
