#include <doctest/doctest.h>

#include "optim/adafactor.h"
#include "optim/adafactor_torch.h"
#include "tests/optim/optim_testing.h"

using namespace minim;
using namespace minim::optim;
using namespace minim::test;

// Where torch's Adafactor goes another way than Hugging Face's.

namespace {

template <class Rule>
std::vector<double> after_steps(int steps, const Tensor& p, const Tensor& gradient,
                                const typename Rule::Options& options) {
  Optimizer<Rule> optimizer({{"p", p}}, options);
  for (int step = 0; step < steps; ++step) {
    Tensor(p).set_grad(gradient);
    optimizer.step();
  }
  return p.to_vector<double>();
}

Tensor ones(const Shape& shape, DType dtype = DType::f64) {
  Tensor p = Tensor::full(shape, 1.0, dtype);
  p.set_requires_grad();
  return p;
}

}  // namespace

TEST_CASE("adafactor_torch: on ordinary gradients the two are one algorithm") {
  const Tensor gradient = convert(Tensor::from(noise(60, 5), {3, 4, 5}), DType::f64);
  const auto torch = after_steps<AdafactorTorchRule>(5, ones({3, 4, 5}), gradient, {});
  const auto hf = after_steps<AdafactorRule>(5, ones({3, 4, 5}), gradient, {});
  for (size_t i = 0; i < hf.size(); ++i)
    CHECK(torch[i] == doctest::Approx(hf[i]).epsilon(1e-13));
}

TEST_CASE("adafactor_torch: lr is a bound of the relative step, and decay takes it as given") {
  // A scalar of 1: RMS(p) = 1, U = 1. First step: min(0.8, 1) with decay 0.8 * 0.5.
  const auto p = after_steps<AdafactorTorchRule>(1, ones({1}), Tensor::full({1}, 3.0, DType::f64),
                                                 {.lr = 0.8, .weight_decay = 0.5});
  CHECK(p[0] == doctest::Approx(1.0 * (1 - 0.8 * 0.5) - 0.8).epsilon(1e-14));
  // A rate of 5 is cut to 1 / sqrt(1): p = 1 - 1.
  const auto q = after_steps<AdafactorTorchRule>(1, ones({1}), Tensor::full({1}, 3.0, DType::f64),
                                                 {.lr = 5.0});
  CHECK(q[0] == doctest::Approx(0.0));
}

TEST_CASE("adafactor_torch: gradients as small as eps1 are no longer normalised") {
  // All of g is 1e-8 in f32, where eps1 is 2^-23 = 1.2e-7. sqrt(V) is bounded by eps1 from below,
  // so that U = 1e-8 / 2^-23 = 0.0839; Hugging Face's 1e-30 within the root leaves U = 1.
  const Tensor gradient = Tensor::full({4, 4}, 1e-8, DType::f32);
  const auto torch = after_steps<AdafactorTorchRule>(1, ones({4, 4}, DType::f32), gradient, {});
  const auto hf = after_steps<AdafactorRule>(1, ones({4, 4}, DType::f32), gradient, {});
  CHECK(1.0 - hf[0] == doctest::Approx(0.01).epsilon(1e-5));
  CHECK(1.0 - torch[0] == doctest::Approx(0.01 * 1e-8 / 0x1p-23).epsilon(1e-3));
}

TEST_CASE(
    "adafactor_torch: half-precision weights have f32 state, and the machine epsilon of f32") {
  // torch would keep it in bf16 with eps1 = 2^-7, which few gradients exceed.
  for (const DType dtype : {DType::bf16, DType::f16}) {
    const Tensor p = ones({4, 4}, dtype), exact = ones({4, 4}, DType::f32);
    const Tensor gradient = Tensor::full({4, 4}, 0x1p-12, dtype);
    after_steps<AdafactorTorchRule>(1, exact, convert(gradient, DType::f32), {});
    after_steps<AdafactorTorchRule>(1, p, gradient, {});
    CHECK(p.to_vector<float>() == convert(exact, dtype).to_vector<float>());
  }
}

TEST_CASE("adafactor_torch: maximize climbs: exactly the step of the negated gradient") {
  const Tensor gradient = Tensor::from(noise(12, 5), {3, 4});
  const Tensor negated = Tensor::from(noise(12, 5), {3, 4});
  for (float& value : negated.values<float>())
    value = -value;
  CHECK(
      after_steps<AdafactorTorchRule>(3, ones({3, 4}, DType::f32), gradient, {.maximize = true}) ==
      after_steps<AdafactorTorchRule>(3, ones({3, 4}, DType::f32), negated, {}));
}

TEST_CASE("adafactor_torch: zeros move nothing, not even without eps1") {
  for (const std::optional<double> eps1 : {std::optional<double>(), {0.0}, {1e-30}})
    for (const Shape& shape : {Shape{6}, Shape{2, 3}})
      CHECK(after_steps<AdafactorTorchRule>(2, ones(shape, DType::f32), Tensor::zeros(shape),
                                            {.eps1 = eps1}) == std::vector<double>(6, 1.0));
}

TEST_CASE("adafactor_torch: options that make no sense are refused by name") {
  const auto error = [](AdafactorTorchRule::Options options) {
    return error_of([&] { AdafactorTorch({{"p", scalar(1.0)}}, options); });
  };
  CHECK(error({.lr = -1.0}) == "adafactor_torch: lr is -1, must be finite and not negative");
  CHECK(error({.beta2_decay = 0.8}) ==
        "adafactor_torch: beta2_decay is 0.8, must be finite and not positive");
  CHECK(error({.eps1 = -1.0}) == "adafactor_torch: eps1 is -1, must be finite and not negative");
  CHECK(error({.eps2 = -1.0}) == "adafactor_torch: eps2 is -1, must be finite and not negative");
  CHECK(error({.d = 0.5}) == "adafactor_torch: d is 0.5, must be finite and at least 1");
  CHECK(error({.weight_decay = -1.0}) ==
        "adafactor_torch: weight_decay is -1, must be finite and not negative");
}
