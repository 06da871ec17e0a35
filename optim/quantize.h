#pragma once

#include <cstdint>
#include <string_view>

#include "core/tensor.h"
#include "optim/code_map.h"

// Block-wise quantisation (Dettmers et al., "8-bit optimizers via block-wise quantization", 2022):
// a tensor is cut, in the order of its elements, into blocks; each block is divided by its largest
// magnitude and every quotient replaced by the code nearest to it. An outlier so spoils no more
// than its own block.
namespace minim::optim {

// Smallest and largest block; between them any power of two.
inline constexpr int64_t smallest_block = 64, largest_block = 4096;

struct Quantized {
  Tensor codes;   // u8, of the tensor's shape
  Tensor absmax;  // f32 [blocks]: the largest magnitude in each; the last block may be shorter
  int64_t block;  // elements
};

// Throws for an x that is not floating and for a block that is no power of two in the range. f64 is
// rounded to f32 first. NaN or an infinity makes NaN of its block's other elements as well, except
// that with an infinity alone they become 0 * infinity.
Quantized quantize_blockwise(const Tensor& x, const CodeMap& map, int64_t block = 256);

// value(code) * absmax in f32. Throws where codes and absmax do not fit each other.
Tensor dequantize_blockwise(const Quantized& quantized, const CodeMap& map);

// Number of blocks of a tensor.
constexpr int64_t blocks_of(int64_t elements, int64_t block) {
  return (elements + block - 1) / block;
}

// Throws, naming `who`, for a block that is no power of two in the range.
void check_block(std::string_view who, int64_t block);

}  // namespace minim::optim
