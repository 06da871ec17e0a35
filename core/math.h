#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "core/portable.h"

// Elementary functions for kernels. The float versions have no branches and no calls, so that loops
// over them vectorise on the CPU and give the same bits on every device; the double versions are
// libm's, so that derivatives can be checked against something exact.
namespace minim::math {

// exp: relative error below 2 ulp; 0 below -87.3 and infinity above 88.7; NaN stays NaN.
HD inline float exp(float x) {
  const float clamped = x < -87.33654f ? -87.33654f : (x > 88.72283f ? 88.72283f : x);
  // Adding 1.5 * 2^23 rounds x / log(2) to an integer n in the low bits of the sum.
  const float shifted = clamped * 1.44269504f + 12582912.0f;
  const float n = shifted - 12582912.0f;
  const float r = (clamped - n * 0.693359375f) + n * 2.12194440e-4f;  // log(2) in two parts
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  // 2^n in two factors, since 2^128 alone is no float.
  const int32_t exponent = int32_t(std::bit_cast<uint32_t>(shifted) - 0x4B400000u);
  const int32_t half = exponent >> 1;
  const float y = p * std::bit_cast<float>(uint32_t(half + 127) << 23) *
                  std::bit_cast<float>(uint32_t(exponent - half + 127) << 23);
  return x < -87.33654f ? 0.0f : (x > 88.72283f ? std::numeric_limits<float>::infinity() : y);
}

// The complementary error function without its exponential: erfc(z) = exp(-z * z) * erfc_factor(z)
// for z >= 0, relative error below 6e-7. A fit of degree 8 in 1 / (1 + 0.4 z).
HD inline float erfc_factor(float z) {
  const float t = 1.0f / (1.0f + 0.4f * z);
  float p = 0.0502589586f;
  p = p * t - 0.182889897f;
  p = p * t + 0.169068453f;
  p = p * t - 0.00559473323f;
  p = p * t + 0.141426169f;
  p = p * t + 0.168543132f;
  p = p * t + 0.207842577f;
  p = p * t + 0.225669603f;
  p = p * t + 0.225675862f;
  return p * t;
}

// tanh: relative error below 4e-7.
HD inline float tanh(float x) {
  const float a = x < 0 ? -x : x;
  const float s = x * x;
  float p = -5.70498872745e-3f;
  p = p * s + 2.06390887954e-2f;
  p = p * s - 5.37397155531e-2f;
  p = p * s + 1.33314422036e-1f;
  p = p * s - 3.33332819422e-1f;
  const float small = x + x * s * p;
  const float large = 1.0f - 2.0f / (exp(2.0f * a) + 1.0f);
  return a < 0.625f ? small : (x < 0 ? -large : large);
}

// The distribution function of the standard normal, and its density.
HD inline float normal_cdf(float x) {
  const float z = (x < 0 ? -x : x) * 0.70710678f;
  const float tail = 0.5f * exp(-z * z) * erfc_factor(z);
  return x < 0 ? tail : 1.0f - tail;
}
HD inline float normal_pdf(float x) {
  return 0.39894228f * exp(-0.5f * x * x);
}

HD inline float sigmoid(float x) {
  return 1.0f / (1.0f + exp(-x));
}

HD inline float log(float x) {
  return std::log(x);
}
HD inline float sqrt(float x) {
  return std::sqrt(x);
}
HD inline float pow(float x, float y) {
  return std::pow(x, y);
}
HD inline float log1p(float x) {
  return std::log1p(x);
}

HD inline double exp(double x) {
  return std::exp(x);
}
HD inline double tanh(double x) {
  return std::tanh(x);
}
HD inline double normal_cdf(double x) {
  return 0.5 * std::erfc(-x * 0.70710678118654752440);
}
HD inline double normal_pdf(double x) {
  return 0.39894228040143267794 * std::exp(-0.5 * x * x);
}
HD inline double sigmoid(double x) {
  return 1.0 / (1.0 + std::exp(-x));
}
HD inline double log(double x) {
  return std::log(x);
}
HD inline double sqrt(double x) {
  return std::sqrt(x);
}
HD inline double pow(double x, double y) {
  return std::pow(x, y);
}
HD inline double log1p(double x) {
  return std::log1p(x);
}

}  // namespace minim::math
