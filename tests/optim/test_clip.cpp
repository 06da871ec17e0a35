#include <doctest/doctest.h>

#include "optim/clip.h"
#include "tests/optim/optim_testing.h"

using namespace minim;
using namespace minim::optim;
using namespace minim::test;

namespace {

NamedTensors with_gradients(const std::vector<std::vector<float>>& gradients) {
  NamedTensors parameters;
  for (const auto& values : gradients) {
    const Shape shape = {int64_t(values.size())};
    Tensor p = Tensor::zeros(shape);
    p.set_requires_grad();
    p.set_grad(Tensor::from(values, shape));
    parameters.push_back({fmt::format("p{}", parameters.size()), p});
  }
  return parameters;
}

}  // namespace

TEST_CASE("clip_grad_norm: returns the norm before, and scales by max_norm / (norm + 1e-6)") {
  const NamedTensors parameters = with_gradients({{3, 0}, {-4}});
  CHECK(clip_grad_norm(parameters, 1.0) == 5.0);  // sqrt(3^2 + 4^2), over all tensors together
  CHECK(parameters[0].tensor.grad().to_vector<float>()[0] == float(3.0f * float(1.0 / 5.000001)));
  CHECK(parameters[1].tensor.grad().to_vector<float>()[0] == float(-4.0f * float(1.0 / 5.000001)));
}

TEST_CASE("clip_grad_norm: gradients within the limit stay as they are, bit for bit") {
  const NamedTensors parameters = with_gradients({{3, 0.1f}, {-4}});
  clip_grad_norm(parameters, 100.0);
  CHECK(parameters[0].tensor.grad().to_vector<float>() == std::vector<float>{3, 0.1f});
}

TEST_CASE("clip_grad_norm: parameters without gradient count nothing, tied ones count once") {
  NamedTensors parameters = with_gradients({{3}, {4}});
  parameters.push_back({"unused", Tensor::zeros({5})});
  parameters.push_back({"tied", parameters[0].tensor});
  CHECK(clip_grad_norm(parameters, 2.5) == 5.0);
  CHECK(parameters[0].tensor.grad().item() == doctest::Approx(1.5));
  CHECK(gradient_norm({}) == 0.0);
}

TEST_CASE("clip_grad_norm: squares are summed in f64, where f32 would overflow or vanish") {
  CHECK(gradient_norm(with_gradients({{3e30f}, {4e30f}})) == doctest::Approx(5e30).epsilon(1e-6));
  CHECK(gradient_norm(with_gradients({{3e-30f}, {4e-30f}})) ==
        doctest::Approx(5e-30).epsilon(1e-6));
  const Tensor p = scalar(0.0);
  set_gradient(p, 1e200);  // its square is beyond f64 too
  CHECK(gradient_norm({{"p", p}}) == doctest::Approx(1e200));
}

TEST_CASE("clip_grad_norm: a large tensor has the norm that its elements have") {
  // 100,000 gradients of 1/2: sqrt(100000 / 4).
  const NamedTensors parameters = with_gradients({std::vector<float>(100000, 0.5f)});
  CHECK(gradient_norm(parameters) == std::sqrt(25000.0));
}

TEST_CASE("clip_grad_norm: a gradient that is not finite is named, and nothing is scaled") {
  const float nan = std::nanf(""), inf = INFINITY;
  const auto error = [](const NamedTensors& parameters) {
    return error_of([&] { clip_grad_norm(parameters, 1.0); });
  };
  const NamedTensors parameters = with_gradients({{100}, {nan, 1, nan}, {inf}});
  CHECK(error(parameters) == "clip_grad_norm: the gradient of p1 holds 2 NaN among 3 elements");
  CHECK(parameters[0].tensor.grad().item() == 100.0);
  CHECK(error(with_gradients({{1, -inf}})) ==
        "clip_grad_norm: the gradient of p0 holds 1 infinity among 2 elements");
  CHECK(error(with_gradients({{inf, nan, inf}})) ==
        "clip_grad_norm: the gradient of p0 holds 1 NaN and 2 infinities among 3 elements");
  CHECK_FALSE(std::isfinite(gradient_norm(parameters)));
  CHECK_FALSE(find_non_finite(with_gradients({{1, 2}})).has_value());
  CHECK(error_of([&] { clip_grad_norm(with_gradients({{1}}), -1.0); }) ==
        "clip_grad_norm: max_norm is -1, must be finite and not negative");
}

TEST_CASE("clip_grad_norm: 16-bit gradients are clipped in 16 bits") {
  Tensor p = Tensor::zeros({2}, DType::bf16);
  p.set_grad(convert(Tensor::from({3.0f, 4.0f}, {2}), DType::bf16));
  CHECK(clip_grad_norm({{"p", p}}, 2.5) == 5.0);
  CHECK(p.grad().to_vector<float>() == std::vector<float>{1.5f, 2.0f});
}

TEST_CASE("clip_grad_value: limits each element by itself") {
  const NamedTensors parameters = with_gradients({{-3, -0.5f, 0.25f, 7, std::nanf("")}});
  clip_grad_value(parameters, 0.5);
  const auto clipped = parameters[0].tensor.grad().to_vector<float>();
  CHECK(std::vector<float>(clipped.begin(), clipped.begin() + 4) ==
        std::vector<float>{-0.5f, -0.5f, 0.25f, 0.5f});
  CHECK(std::isnan(clipped[4]));
}

TEST_CASE("clipping reaches gradients that lie in memory in any order") {
  Tensor p = Tensor::zeros({2, 2});
  p.set_grad(Tensor::from({3.0f, 0.0f, 4.0f, 0.0f}, {2, 2}).view({2, 2}, {1, 2}));
  CHECK(clip_grad_norm({{"p", p}}, 0.0) == 5.0);
  CHECK(p.grad().to_vector<float>() == std::vector<float>{0, 0, 0, 0});
}
