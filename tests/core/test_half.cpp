#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>

#include <doctest/doctest.h>

#include "core/dtype.h"
#include "core/half.h"

namespace minim {
namespace {

// The compiler's own binary16, as the oracle.
__extension__ using Binary16 = _Float16;

bool is_nan(f16 x) {
  return (x.bits & 0x7fff) > 0x7c00;
}

TEST_CASE("all f16 values turn into the same float as the compiler's and back") {
  int wrong = 0;
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    f16 x;
    x.bits = uint16_t(bits);
    const float ours = x, theirs = float(std::bit_cast<Binary16>(uint16_t(bits)));
    if (is_nan(x))
      wrong += !std::isnan(ours) || !is_nan(f16(ours));
    else
      wrong += std::bit_cast<uint32_t>(ours) != std::bit_cast<uint32_t>(theirs) ||
               f16(ours).bits != bits;
  }
  CHECK(wrong == 0);
}

TEST_CASE("all bf16 values turn into a float and back") {
  int wrong = 0;
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    bf16 x;
    x.bits = uint16_t(bits);
    const float value = x;
    if (std::isnan(value))
      wrong += !std::isnan(float(bf16(value)));
    else
      wrong += std::bit_cast<uint32_t>(value) != bits << 16 || bf16(value).bits != bits;
  }
  CHECK(wrong == 0);
}

bool f16_agrees(float x) {
  if (std::isnan(x)) return is_nan(f16(x));
  return f16(x).bits == std::bit_cast<uint16_t>(Binary16(x));
}

TEST_CASE("rounding to f16 equals the compiler's") {
  int64_t wrong = 0;
  // Every f16, the middle between it and its neighbour (a tie), and one float beside both.
  for (uint32_t bits = 0; bits < 0x7c00; ++bits) {
    const float a = float(std::bit_cast<Binary16>(uint16_t(bits)));
    const float b = float(std::bit_cast<Binary16>(uint16_t(bits + 1)));
    const float middle = bits == 0x7bff ? 65520.0f : a + (b - a) / 2;
    for (float x : {a, middle, std::nextafter(middle, 0.0f), std::nextafter(middle, INFINITY),
                    std::nextafter(a, 0.0f), std::nextafter(a, INFINITY)})
      wrong += !f16_agrees(x) + !f16_agrees(-x);
  }
  // Random bit patterns cover subnormals, overflow, infinities and NaN.
  std::mt19937 random(1);
  for (int i = 0; i < 4000000; ++i)
    wrong += !f16_agrees(std::bit_cast<float>(uint32_t(random())));
  CHECK(wrong == 0);
}

// The nearest bf16 found by comparing distances to the two neighbours in double.
uint16_t nearest_bf16(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  const uint32_t down = bits & 0xffff0000u, up = down + 0x10000u;
  const double to_down = std::abs(double(x) - double(std::bit_cast<float>(down)));
  // Beyond the largest bf16 the next one would be 2^128.
  const bool last = (up & 0x7fffffffu) == 0x7f800000u;
  const double above = last ? std::copysign(0x1p128, x) : double(std::bit_cast<float>(up));
  const double to_up = std::abs(double(x) - above);
  const bool even_down = (down & 0x10000u) == 0;
  return uint16_t((to_down < to_up || (to_down == to_up && even_down) ? down : up) >> 16);
}

TEST_CASE("rounding to bf16 is to the nearest, ties to even") {
  int64_t wrong = 0;
  std::mt19937 random(2);
  for (int i = 0; i < 2000000; ++i) {
    const uint32_t word = random();
    // One in two is a tie.
    const float x = std::bit_cast<float>(i % 2 ? word : (word & 0xffff0000u) | 0x8000u);
    if (std::isnan(x))
      wrong += !std::isnan(float(bf16(x)));
    else if (std::isinf(x))
      wrong += float(bf16(x)) != x;
    else
      wrong += bf16(x).bits != nearest_bf16(x);
  }
  CHECK(wrong == 0);
  CHECK(std::isinf(float(bf16(std::numeric_limits<float>::max()))));
}

TEST_CASE("dtypes have names, sizes and types") {
  CHECK(name_of(DType::bf16) == "bf16");
  CHECK(name_of(DType::boolean) == "bool");
  CHECK(size_of(DType::f64) == 8);
  CHECK(is_floating(DType::f16));
  CHECK_FALSE(is_floating(DType::i32));
  for (DType dtype : {DType::f32, DType::f64, DType::f16, DType::bf16, DType::i32, DType::i64,
                      DType::u8, DType::boolean})
    dispatch_any(dtype, [&]<class T>() {
      CHECK(dtype_of<T> == dtype);
      CHECK(int64_t(sizeof(T)) == size_of(dtype));
    });
  CHECK_THROWS_WITH_AS(dispatch_float(DType::i64, "gelu", []<class T>() {}),
                       "gelu: needs f32, f64, f16 or bf16, got i64", Error);
  CHECK_THROWS_WITH_AS(dispatch_index(DType::f32, "gather", []<class T>() {}),
                       "gather: needs i32 or i64, got f32", Error);
}

}  // namespace
}  // namespace minim
