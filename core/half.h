#pragma once

#include <bit>
#include <cstdint>

#include "core/portable.h"

// Storage-only 16-bit floats, two bytes each: explicit from float, implicit to float, so that
// arithmetic always happens in float.
namespace minim {

// bfloat16: the upper half of a float; conversion rounds to nearest even.
struct bf16 {
  uint16_t bits;

  bf16() = default;
  HD explicit bf16(float value) {
    const uint32_t u = std::bit_cast<uint32_t>(value);
    const bool is_nan = (u & 0x7fffffffu) > 0x7f800000u;
    const uint32_t rounded = u + 0x7fffu + ((u >> 16) & 1u);
    bits = is_nan ? uint16_t((u >> 16) | 0x40u) : uint16_t(rounded >> 16);
  }
  HD operator float() const {  // NOLINT(google-explicit-constructor)
    return std::bit_cast<float>(uint32_t(bits) << 16);
  }  // NOLINT(google-explicit-constructor)
};

// IEEE binary16; conversion rounds to nearest even, overflows to infinity, keeps subnormals.
struct f16 {
  uint16_t bits;

  f16() = default;
  HD explicit f16(float value) {
    const uint32_t u = std::bit_cast<uint32_t>(value);
    const uint32_t magnitude = u & 0x7fffffffu;
    uint32_t half;
    if (magnitude >= 0x7f800000u) {
      half = magnitude > 0x7f800000u ? 0x7e00u : 0x7c00u;
    } else if (magnitude >= 0x477ff000u) {  // rounds to 65536 or above
      half = 0x7c00u;
    } else if (magnitude < 0x38800000u) {
      // Adding 0.5 aligns a subnormal's bits with the end of the mantissa; the adder rounds.
      half = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000u;
    } else {
      half = (magnitude + 0xfffu + ((magnitude >> 13) & 1u) - 0x38000000u) >> 13;
    }
    bits = uint16_t(((u >> 16) & 0x8000u) | half);
  }
  HD operator float() const {  // NOLINT(google-explicit-constructor)
    const uint32_t magnitude = bits & 0x7fffu;
    uint32_t u;
    if (magnitude >= 0x7c00u) {
      u = 0x7f800000u | (magnitude << 13);
    } else if (magnitude >= 0x0400u) {
      u = (magnitude << 13) + 0x38000000u;
    } else {
      u = std::bit_cast<uint32_t>(float(magnitude) * 5.9604644775390625e-8f);  // 2^-24
    }
    return std::bit_cast<float>(u | (uint32_t(bits & 0x8000u) << 16));
  }
};

}  // namespace minim
