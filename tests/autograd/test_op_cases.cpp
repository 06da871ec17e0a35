// What every row of op_cases must pass.
#include <cmath>
#include <set>

#include <doctest/doctest.h>

#include "autograd/gradcheck.h"
#include "autograd/node.h"
#include "autograd/ops.h"
#include "core/parallel.h"
#include "tests/autograd/op_cases.h"

namespace minim {
namespace {

// |a - b| <= tolerance * (|b| + floor) for all elements of two tensors of one shape.
void check_close(const Tensor& ours, const Tensor& expected, double tolerance, double floor) {
  REQUIRE(ours.shape() == expected.shape());
  const std::vector<double> a = ours.to_vector<double>(), b = expected.to_vector<double>();
  for (size_t i = 0; i < a.size(); ++i) {
    CAPTURE(i);
    CAPTURE(a[i]);
    CAPTURE(b[i]);
    CHECK(std::abs(a[i] - b[i]) <= tolerance * (std::abs(b[i]) + floor));
  }
}

TEST_CASE("rows have names of their own") {
  std::set<std::string> names;
  for (const OpCase& row : op_cases())
    CHECK_MESSAGE(names.insert(row.name).second, row.name);
}

TEST_CASE("operations have the values that their row states") {
  for (const OpCase& row : op_cases()) {
    if (row.expected.empty()) continue;
    CAPTURE(row.name);
    for (DType dtype : {DType::f32, DType::f64, DType::f16, DType::bf16}) {
      const Tensor y = row.function(make_inputs(row, dtype));
      CHECK(y.to_vector<double>() == row.expected);  // all of them are exact in 8 bits
    }
  }
}

TEST_CASE("f32 agrees with f64") {
  for (const OpCase& row : op_cases()) {
    CAPTURE(row.name);
    const Tensor f32 = row.function(make_inputs(row, DType::f32));
    const Tensor f64 = row.function(make_inputs(row, DType::f64, Layout::contiguous, DType::f32));
    check_close(f32, f64, 4e-6, 0.25);  // some tens of roundings of 6e-8
  }
}

TEST_CASE("the memory order of the inputs does not matter") {
  for (const OpCase& row : op_cases()) {
    CAPTURE(row.name);
    const Tensor plain = row.function(make_inputs(row, DType::f64));
    const Tensor reversed = row.function(make_inputs(row, DType::f64, Layout::reversed));
    check_close(reversed, plain, 1e-14, 1);
  }
}

TEST_CASE("gradients equal differences in f64 and f32, in both memory orders") {
  const int threads = thread_count();
  set_thread_count(1);  // waking others for a few elements costs more than they save
  for (const OpCase& row : op_cases()) {
    if (!row.smooth) continue;
    CAPTURE(row.name);
    for (DType dtype : {DType::f64, DType::f32})
      for (Layout layout : {Layout::contiguous, Layout::reversed}) {
        const GradcheckResult result = gradcheck(row.function, make_inputs(row, dtype, layout));
        CHECK_MESSAGE(result.ok, result.message);
      }
  }
  set_thread_count(threads);
}

struct ValueGradients {
  Tensor value;
  Tensors gradients;  // undefined where there is none
};

// With the gradient of the result growing from element to element.
ValueGradients differentiate(const OpCase& row, Tensors inputs) {
  for (Tensor& x : inputs)
    if (is_floating(x.dtype())) x.set_requires_grad();
  ValueGradients result{row.function(inputs), {}};
  Tensor dy = Tensor::empty(result.value.shape(), DType::f32);
  for (int64_t i = 0; i < dy.numel(); ++i)
    dy.data<float>()[i] = 0.5f + float(i % 8) / 8;
  result.value.backward(convert(dy, result.value.dtype()));
  for (const Tensor& x : inputs)
    result.gradients.push_back(x.grad());
  return result;
}

TEST_CASE("f16 and bf16 agree with f32 on the same inputs") {
  for (DType half : {DType::f16, DType::bf16})
    for (const OpCase& row : op_cases()) {
      if (!row.smooth) continue;
      CAPTURE(row.name);
      CAPTURE(name_of(half));
      // Four units in the last of 11 or 8 bits: roundings of the result, of what the backward saved
      // and of the gradient. Saved values near 1 (tanh, softmax) make them absolute.
      const double tolerance = half == DType::f16 ? 2e-3 : 1.6e-2;
      const auto low = differentiate(row, make_inputs(row, half));
      const auto full = differentiate(row, make_inputs(row, DType::f32, Layout::contiguous, half));
      check_close(low.value, full.value, tolerance, 0.5);
      for (size_t i = 0; i < full.gradients.size(); ++i) {
        CAPTURE(i);
        if (!full.gradients[i].defined()) continue;
        REQUIRE(low.gradients[i].defined());
        CHECK(low.gradients[i].dtype() == half);
        check_close(low.gradients[i], full.gradients[i], tolerance, 0.5);
      }
    }
}

TEST_CASE("f16 and bf16 results keep the dtype of the inputs") {
  for (const OpCase& row : op_cases()) {
    if (row.name == "to f64" || row.name == "argmax") continue;
    CAPTURE(row.name);
    CHECK(row.function(make_inputs(row, DType::bf16)).dtype() == DType::bf16);
  }
}

TEST_CASE("operations record nothing under NoGrad") {
  for (const OpCase& row : op_cases()) {
    CAPTURE(row.name);
    Tensors inputs = make_inputs(row, DType::f32);
    for (Tensor& x : inputs)
      if (is_floating(x.dtype())) x.set_requires_grad();
    const NoGrad no_grad;
    CHECK(row.function(inputs).is_leaf());
  }
}

TEST_CASE("packed attention equals scaled_dot_product_attention per sequence and head") {
  constexpr int64_t heads = 2, head_dim = 3, dim = heads * head_dim;
  const OpCase inputs{"packed", {{{9, dim}, -2, 2}, {{9, dim}, -2, 2}, {{9, dim}}}, nullptr};
  const Tensors qkv = make_inputs(inputs, DType::f64);
  const std::vector<int> offsets = {0, 4, 5, 9}, key_begin = {1, 4, 5}, key_end = {4, 5, 9};
  const AttentionRows rows = {Tensor::from(offsets, {4}), Tensor::from(key_begin, {3}),
                              Tensor::from(key_end, {3})};
  Generator generator;
  const Tensor packed = attention(qkv[0], qkv[1], qkv[2], rows, heads, 0, generator);
  CHECK(generator.offset == 0);
  for (size_t s = 0; s < 3; ++s) {
    const auto head_first = [](const Tensor& x, int64_t begin, int64_t end) {
      return transpose(reshape(slice(x, 0, begin, end), {end - begin, heads, head_dim}), 0, 1);
    };
    const Tensor y = scaled_dot_product_attention(head_first(qkv[0], offsets[s], offsets[s + 1]),
                                                  head_first(qkv[1], key_begin[s], key_end[s]),
                                                  head_first(qkv[2], key_begin[s], key_end[s]));
    check_close(head_first(packed, offsets[s], offsets[s + 1]), y, 1e-13, 1);
  }
}

}  // namespace
}  // namespace minim
