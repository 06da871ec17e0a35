#pragma once

#include <array>
#include <vector>

#include "optim/quantize.h"

namespace minim::optim {

// How far codes may be, or are, from the numbers that they were made of.
struct QuantizationError {
  std::vector<double> worst;  // of any element, by block
  double rms = 0;             // over all elements

  double largest() const;
};

// How far a number that got a code can lie below and above the code's value, as fractions of the
// block's scale. Each number goes to the nearest code, so that is half the gap to the neighbour, or
// the way to the end of the scale; the rounding of a division and a product in f32 is added.
struct CodeReach {
  double below = 0, above = 0;
};
std::array<CodeReach, 256> code_reach(const CodeMap& map);

// What the codes alone tell: the most that each block's elements can be off, and the rms for
// numbers that lie evenly in the reach of their codes. Blocks whose scale is not finite count as 0.
QuantizationError quantization_error_bound(const Quantized& quantized, const CodeMap& map);

// What it is where the numbers are known, f32 or f64 of the codes' shape.
QuantizationError quantization_error(const Tensor& exact, const Quantized& quantized,
                                     const CodeMap& map);

}  // namespace minim::optim
