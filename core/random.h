#pragma once

#include <cmath>
#include <cstdint>
#include <string_view>

#include "core/portable.h"
#include "core/tensor.h"

// Counter-based random numbers: every word is a function of (seed, stream, counter) alone, so a
// draw can be repeated, skipped or made in any order, on any device, by any number of threads.
namespace minim {

// Four 32-bit words.
struct PhiloxBlock {
  uint32_t words[4];
};

// Philox-4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011).
HD inline PhiloxBlock philox(uint64_t seed, uint64_t counter, uint64_t stream = 0) {
  uint32_t c0 = uint32_t(counter), c1 = uint32_t(counter >> 32);
  uint32_t c2 = uint32_t(stream), c3 = uint32_t(stream >> 32);
  uint32_t k0 = uint32_t(seed), k1 = uint32_t(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t(0xD2511F53u) * c0;
    const uint64_t p1 = uint64_t(0xCD9E8D57u) * c2;
    const uint32_t n0 = uint32_t(p1 >> 32) ^ c1 ^ k0;
    const uint32_t n2 = uint32_t(p0 >> 32) ^ c3 ^ k1;
    c1 = uint32_t(p1);
    c3 = uint32_t(p0);
    c0 = n0;
    c2 = n2;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {{c0, c1, c2, c3}};
}

// Uniform in [0, 1), with 24 bits, the same on every device.
HD inline float uniform01(uint32_t word) {
  return float(word >> 8) * 5.9604644775390625e-8f;  // 2^-24
}

// A position in the random sequence of a seed. An operation that draws n blocks takes the n blocks
// at `offset` and moves it on, so two numbers are all a checkpoint has to keep.
struct Generator {
  uint64_t seed = 0;
  uint64_t offset = 0;

  // Returns the offset before the draw.
  uint64_t take(uint64_t blocks) {
    const uint64_t before = offset;
    offset += blocks;
    return before;
  }
};

// Whether dropout keeps an element: 16 random bits at a time, addressed by the element's index,
// eight elements to a block. The probability that is realised is a multiple of 2^-16, and the scale
// is one over it, so the expectation is exact. p = 1 drops everything.
struct DropoutMask {
  uint64_t seed, offset;
  uint32_t threshold;  // kept where the 16 bits are at least this
  // Where the device finds seed and offset instead, in work that is recorded; else null.
  const uint64_t* start = nullptr;

  DropoutMask(float p, uint64_t seed, uint64_t offset)
      : seed(seed), offset(offset), threshold(uint32_t(std::lround(double(p) * 65536.0))) {}
  // Blocks that n elements use.
  static uint64_t blocks(int64_t n) { return uint64_t(n + 7) / 8; }

  // A block of the mask's own.
  HD PhiloxBlock block(uint64_t number) const {
    return start != nullptr ? philox(start[0], start[1] + number) : philox(seed, offset + number);
  }
  HD float scale() const {
    return threshold >= 65536u ? 0.0f : 65536.0f / float(65536u - threshold);
  }
  HD static uint32_t bits(const PhiloxBlock& block, int64_t i) {
    return (block.words[(i & 7) >> 1] >> ((i & 1) * 16)) & 0xffffu;
  }
  // 0 or scale() for one element.
  HD float operator()(int64_t i) const {
    return bits(block(uint64_t(i) / 8), i) >= threshold ? scale() : 0.0f;
  }
};

// Fills with draws from N(mean, std^2) or U[low, high), from the stream of a name: the values
// depend on (seed, name) and on nothing that was drawn before. f32 and f64 hold the same numbers.
void fill_normal(const Tensor& x, double mean, double std, uint64_t seed, std::string_view name);
void fill_uniform(const Tensor& x, double low, double high, uint64_t seed, std::string_view name);

// Tensors for tests and experiments, standard normal and uniform in [0, 1).
Tensor randn(const Shape& shape, uint64_t seed = 0, DType dtype = DType::f32);
Tensor rand(const Shape& shape, uint64_t seed = 0, DType dtype = DType::f32);

}  // namespace minim
