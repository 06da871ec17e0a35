#include "optim/quantize.h"

#include <algorithm>
#include <bit>

#include "core/error.h"
#include "core/parallel.h"
#include "optim/quantize_block.h"

namespace minim::optim {

namespace {

constexpr int64_t grain = 32768;  // elements that one thread takes at a time

// Calls body(block, first element, elements) for each block.
template <class Body>
void each_block(int64_t elements, int64_t block, const Body& body) {
  parallel_chunks(blocks_of(elements, block), grain / block, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b)
      body(b, b * block, std::min(block, elements - b * block));
  });
}

}  // namespace

void check_block(std::string_view who, int64_t block) {
  check(block >= smallest_block && block <= largest_block && std::has_single_bit(uint64_t(block)),
        "{}: block_size is {}, must be a power of two from {} to {}", who, block, smallest_block,
        largest_block);
}

Quantized quantize_blockwise(const Tensor& x, const CodeMap& map, int64_t block) {
  check_block("quantize_blockwise", block);
  check(is_floating(x.dtype()), "quantize_blockwise: needs f32, f64, f16 or bf16, got {}",
        name_of(x.dtype()));
  const Tensor dense = convert(x.contiguous(), DType::f32).to(Device::cpu());
  const int64_t n = x.numel(), blocks = blocks_of(n, block);
  Quantized result = {Tensor::empty(x.shape(), DType::u8), Tensor::empty({blocks}), block};
  const float* from = dense.data<float>();
  uint8_t* codes = result.codes.data<uint8_t>();
  float* absmax = result.absmax.data<float>();
  each_block(n, block, [&](int64_t b, int64_t first, int64_t count) {
    LargestMagnitude largest;
    for (int64_t i = 0; i < count; ++i)
      largest.see(from[first + i]);
    absmax[b] =
        quantize_block(from + first, largest.value(), map, count < block, codes + first, count);
  });
  return {result.codes.to(x.device()), result.absmax.to(x.device()), block};
}

Tensor dequantize_blockwise(const Quantized& quantized, const CodeMap& map) {
  const auto& [codes, absmax, block] = quantized;
  check_block("dequantize_blockwise", block);
  check(codes.dtype() == DType::u8 && absmax.dtype() == DType::f32,
        "dequantize_blockwise: codes are {} and absmax is {}, must be u8 and f32",
        name_of(codes.dtype()), name_of(absmax.dtype()));
  const int64_t n = codes.numel();
  check(absmax.shape() == Shape{blocks_of(n, block)},
        "dequantize_blockwise: absmax has shape {}, must have [{}] for {} codes in blocks of {}",
        absmax.shape(), blocks_of(n, block), n, block);
  const Tensor dense = codes.contiguous().to(Device::cpu());
  const Tensor scales = absmax.contiguous().to(Device::cpu());
  const Tensor x = Tensor::empty(codes.shape());
  const uint8_t* from = dense.data<uint8_t>();
  const float* scale = scales.data<float>();
  float* to = x.data<float>();
  each_block(n, block, [&](int64_t b, int64_t first, int64_t count) {
    dequantize_block(from + first, scale[b], map.values().data(), to + first, count);
  });
  return x.to(codes.device());
}

}  // namespace minim::optim
