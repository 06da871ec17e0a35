#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "core/tensor.h"
#include "optim/any_optimizer.h"
#include "tests/core/temporary_folder.h"

// What the tests of optimizers share.
namespace minim::test {

// A parameter: a leaf that asks for a gradient.
template <class T>
Tensor parameter(const std::vector<T>& values, const Shape& shape) {
  Tensor p = Tensor::from(values, shape);
  p.set_requires_grad();
  return p;
}

// The CPU, and a CUDA device where there is one.
inline std::vector<Device> devices() {
  std::vector<Device> all = {Device::cpu()};
  if (cuda::device_count() > 0) all.push_back(Device::cuda());
  return all;
}

// A parameter with one element.
inline Tensor scalar(double value) {
  return parameter(std::vector<double>{value}, {1});
}

inline void set_gradient(Tensor p, double value) {
  p.set_grad(Tensor::full(p.shape(), value, p.dtype()));
}

// Within `relative` of |expected| + 1e-3; NaN and infinities must be the same.
inline bool is_near(double got, double expected, double relative) {
  if (std::isnan(expected)) return std::isnan(got);
  if (std::isinf(expected)) return got == expected;
  return std::abs(got - expected) <= relative * (std::abs(expected) + 1e-3);
}

// Numbers that look random and are the same everywhere: the fractional parts of multiples of the
// golden ratio, between -1 and 1, started anew by each seed.
inline std::vector<float> noise(int64_t n, int seed) {
  std::vector<float> values;
  for (int64_t i = 0; i < n; ++i) {
    const double x = double(i + 1) * 0.6180339887498949 * double(seed) + 0.1 * double(seed);
    values.push_back(float(2.0 * (x - std::floor(x)) - 1.0));
  }
  return values;
}

// The step of that number, counted from 0, with noise for gradients and a falling rate.
inline void take_noisy_step(optim::AnyOptimizer& optimizer, const NamedTensors& parameters,
                            int step) {
  for (const NamedTensor& p : parameters)
    Tensor(p.tensor).set_grad(convert(
        Tensor::from(noise(p.tensor.numel(), 7 + step), p.tensor.shape()), p.tensor.dtype()));
  optimizer.step(1e-2 / double(step + 1));
}

}  // namespace minim::test
