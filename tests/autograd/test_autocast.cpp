// What Autocast does to operations, and leaves alone.
#include <cmath>

#include <doctest/doctest.h>

#include "autograd/autocast.h"
#include "autograd/node.h"
#include "autograd/ops.h"
#include "tests/autograd/op_cases.h"
#include "tests/core/temporary_folder.h"

namespace minim {
namespace {

constexpr DType halves[] = {DType::bf16, DType::f16};

// Half a unit in the last place, relatively: 8 and 11 bits.
double rounding(DType dtype) {
  return dtype == DType::bf16 ? 0x1p-9 : 0x1p-12;
}

Tensor ramp(const Shape& shape, double step = 0.1) {
  std::vector<float> values;
  for (int64_t i = 0; i < shape.numel(); ++i)
    values.push_back(float(std::sin(double(i) * step * 7 + 0.3)));
  return Tensor::from(values, shape);
}

struct Outcome {
  Tensor value;
  Tensors gradients;
};

// A row's value and the gradients of the sum of its elements, each times a number of its own.
Outcome run(const OpCase& row, std::optional<DType> dtype) {
  Tensors inputs = make_inputs(row, DType::f32);
  for (Tensor& input : inputs)
    if (row.smooth && is_floating(input.dtype())) input.set_requires_grad();
  Outcome outcome;
  {
    const Autocast precision(dtype);
    outcome.value = row.function(inputs);
  }
  if (row.smooth) {
    const Tensor y = to(outcome.value, DType::f32);
    sum(y * ramp(y.shape())).backward();
    for (const Tensor& input : inputs)
      outcome.gradients.push_back(is_floating(input.dtype()) ? input.grad() : Tensor());
  }
  return outcome;
}

void check_close(const Tensor& ours, const Tensor& expected, double tolerance) {
  REQUIRE(ours.shape() == expected.shape());
  const auto a = ours.to_vector<double>(), b = expected.to_vector<double>();
  for (size_t i = 0; i < a.size(); ++i) {
    CAPTURE(a[i]);
    CAPTURE(b[i]);
    if (std::isfinite(b[i])) CHECK(std::abs(a[i] - b[i]) <= tolerance * (std::abs(b[i]) + 1));
  }
}

TEST_CASE("every operation under autocast is near its f32 self, and its gradients are f32") {
  for (const DType dtype : halves)
    for (const OpCase& row : op_cases()) {
      CAPTURE(row.name);
      const Outcome plain = run(row, std::nullopt), mixed = run(row, dtype);
      // The rows' inputs are near 1, and products sum at most some tens of terms: inputs, results
      // and gradients are rounded once each, in sums of a size of up to 16.
      const double tolerance = 16 * rounding(dtype);
      check_close(mixed.value, plain.value, tolerance);
      REQUIRE(mixed.gradients.size() == plain.gradients.size());
      for (size_t i = 0; i < mixed.gradients.size(); ++i) {
        if (!plain.gradients[i].defined()) continue;
        REQUIRE(mixed.gradients[i].defined());
        CHECK(mixed.gradients[i].dtype() == DType::f32);
        check_close(mixed.gradients[i], plain.gradients[i], tolerance);
      }
    }
}

TEST_CASE("results have the dtype that they have in PyTorch") {
  const Tensor x = ramp({4, 6}), w = ramp({4, 6}, 0.2), vector = ramp({6});
  const Tensor rows = Tensor::from<int32_t>({0, 4}, {2});
  const Tensor first = Tensor::from<int32_t>({0}, {1}), end = Tensor::from<int32_t>({4}, {1});
  Generator generator;
  for (const DType dtype : halves) {
    const Autocast precision(dtype);
    const Tensor low = linear(x, w);
    CHECK(low.dtype() == dtype);
    CHECK(matmul(x, transpose(w, 0, 1)).dtype() == dtype);
    CHECK(scaled_dot_product_attention(x, w, x).dtype() == dtype);
    CHECK(attention(x, w, x, {rows, first, end}, 2, 0, generator).dtype() == dtype);
    CHECK(gelu(low).dtype() == dtype);
    CHECK(dropout(low, 0.5f, generator).dtype() == dtype);
    CHECK((low + low).dtype() == dtype);
    // Two dtypes meet in the wider.
    CHECK((linear(x, ramp({6, 6})) + x).dtype() == DType::f32);
    CHECK((x - linear(x, ramp({6, 6}))).dtype() == DType::f32);
    CHECK(concat({linear(x, ramp({6, 6})), x}).dtype() == DType::f32);
    CHECK(where(Tensor::full({4, 6}, 1, DType::boolean), x, linear(x, ramp({6, 6}))).dtype() ==
          DType::f32);
    // What would lose too much stays in f32.
    CHECK(layer_norm(linear(x, ramp({6, 6})), vector, vector, 1e-5).dtype() == DType::f32);
    CHECK(softmax(low).dtype() == DType::f32);
    CHECK(log_softmax(low).dtype() == DType::f32);
    CHECK(logsumexp(low, 1).dtype() == DType::f32);
    CHECK(exp(low).dtype() == DType::f32);
    CHECK(pow(low, 2).dtype() == DType::f32);
    CHECK(sum(low).dtype() == DType::f32);
    CHECK(norm(low).dtype() == DType::f32);
    CHECK(cross_entropy(low, Tensor::from<int64_t>({0, 1, 2, 3}, {4})).dtype() == DType::f32);
    CHECK(mse_loss(low, ramp({4, 4})).dtype() == DType::f32);
    // f64 is left alone.
    CHECK(linear(to(x, DType::f64), to(w, DType::f64)).dtype() == DType::f64);
  }
  CHECK(linear(x, w).dtype() == DType::f32);
}

TEST_CASE("a linear layer computes what its rounded operands give, rounded once") {
  const Tensor x = ramp({5, 8}), w = ramp({3, 8}, 0.3), b = ramp({3});
  for (const DType dtype : halves) {
    const auto rounded = [&](const Tensor& t) { return convert(convert(t, dtype), DType::f32); };
    const Tensor expected = convert(linear(rounded(x), rounded(w), rounded(b)), dtype);
    const Autocast precision(dtype);
    CHECK(linear(x, w, b).to_vector<float>() == expected.to_vector<float>());
  }
}

TEST_CASE("a parameter is cast once for each of its versions") {
  Tensor w = ramp({64, 64});
  w.set_requires_grad();
  const Tensor x = ramp({1, 64});
  const NoGrad no_grad;
  const Autocast precision(DType::bf16);
  const auto weights = [] { return memory::current(memory::Category::weights); };
  const int64_t before = weights();
  const std::vector<float> first = linear(x, w).to_vector<float>();
  CHECK(weights() == before + 2 * 64 * 64);
  for (int i = 0; i < 3; ++i)
    linear(x, w);
  CHECK(weights() == before + 2 * 64 * 64);
  w.fill_(0.5);
  CHECK(linear(x, w).to_vector<float>() != first);
  CHECK(weights() == before + 2 * 64 * 64);
  w = Tensor();
  CHECK(weights() == before);
}

TEST_CASE("a parameter that is used twice gets the sum of both gradients") {
  Tensor w = ramp({3, 3});
  w.set_requires_grad();
  {
    const Autocast precision(DType::bf16);
    sum(linear(linear(ramp({2, 3}), w), w)).backward();  // within the scope, where it may be too
  }
  const Tensor mixed = w.grad();
  w.set_grad(Tensor());
  sum(linear(linear(ramp({2, 3}), w), w)).backward();
  check_close(mixed, w.grad(), 8 * rounding(DType::bf16));
}

TEST_CASE("scopes nest, and end with what was before") {
  CHECK_FALSE(autocast_dtype().has_value());
  {
    const Autocast outer(DType::bf16);
    {
      const Autocast inner(DType::f16);
      CHECK(autocast_dtype() == DType::f16);
      const Autocast off(std::nullopt);
      CHECK_FALSE(autocast_dtype().has_value());
    }
    CHECK(autocast_dtype() == DType::bf16);
  }
  CHECK_FALSE(autocast_dtype().has_value());
}

TEST_CASE("autocast refuses other dtypes") {
  CHECK(test::error_of([] { const Autocast precision(DType::f32); }) ==
        "autocast: the dtype is f32, must be f16 or bf16");
}

}  // namespace
}  // namespace minim
