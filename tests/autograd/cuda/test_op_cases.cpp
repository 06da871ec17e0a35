// Every row of op_cases on a CUDA device, compared with the CPU.
#include <cmath>

#include <doctest/doctest.h>

#include "autograd/ops.h"
#include "core/memory.h"
#include "tests/autograd/op_cases.h"
#include "tests/core/cuda/needs_device.h"

namespace minim {
namespace {

struct ValueGradients {
  Tensor value;
  Tensors gradients;  // undefined where there is none
};

// On a device, with the gradient of the result growing from element to element.
ValueGradients differentiate(const OpCase& row, const Tensors& inputs, Device device) {
  Tensors there;
  for (const Tensor& x : inputs) {
    there.push_back(x.device() == device ? x.detach() : x.to(device));
    if (row.smooth && is_floating(x.dtype())) there.back().set_requires_grad();
  }
  ValueGradients result{row.function(there), {}};
  if (!row.smooth) return result;
  std::vector<float> dy;
  for (int64_t i = 0; i < result.value.numel(); ++i)
    dy.push_back(0.5f + float(i % 8) / 8);
  result.value.backward(
      convert(Tensor::from(dy, result.value.shape(), device), result.value.dtype()));
  for (const Tensor& x : there)
    result.gradients.push_back(x.grad());
  return result;
}

// |a - b| <= tolerance * (|b| + 0.5) for all elements.
void check_close(const Tensor& ours, const Tensor& expected, double tolerance) {
  REQUIRE(ours.shape() == expected.shape());
  CHECK(ours.dtype() == expected.dtype());
  const std::vector<double> a = ours.to_vector<double>(), b = expected.to_vector<double>();
  for (size_t i = 0; i < a.size(); ++i) {
    CAPTURE(i);
    CAPTURE(a[i]);
    CAPTURE(b[i]);
    CHECK(std::abs(a[i] - b[i]) <= tolerance * (std::abs(b[i]) + 0.5));
  }
}

// The same formulas run on both, but sums are made in another order, and a device fuses products
// and sums: some tens of roundings of f32 and f64; of 16 bits, two units in the last place, since a
// sum that is off by little may be rounded the other way, there and in what the backward saved.
double tolerance_of(DType dtype) {
  return dtype == DType::f64   ? 1e-14
         : dtype == DType::f32 ? 4e-6
         : dtype == DType::f16 ? 1e-3
                               : 8e-3;
}

void compare(const OpCase& row, DType dtype, Layout layout) {
  CAPTURE(row.name);
  CAPTURE(name_of(dtype));
  // Memory as good as new: whoever reads what it never wrote is found out by the emulator.
  memory::release_pool();
  const Tensors inputs = make_inputs(row, dtype, layout);
  const auto here = differentiate(row, inputs, Device::cpu());
  const auto there = differentiate(row, inputs, Device::cuda());
  CHECK(there.value.device() == Device::cuda());
  check_close(there.value, here.value, tolerance_of(dtype));
  for (size_t i = 0; i < here.gradients.size(); ++i) {
    CAPTURE(i);
    REQUIRE(there.gradients[i].defined() == here.gradients[i].defined());
    if (!here.gradients[i].defined()) continue;
    CHECK(there.gradients[i].device() == Device::cuda());
    check_close(there.gradients[i], here.gradients[i], tolerance_of(dtype));
  }
}

TEST_CASE("values and gradients on a device are those of the CPU" * needs_device) {
  for (const OpCase& row : op_cases())
    for (DType dtype : {DType::f32, DType::f64, DType::f16, DType::bf16})
      compare(row, dtype, Layout::contiguous);
}

TEST_CASE("inputs on a device may have any memory order" * needs_device) {
  for (const OpCase& row : op_cases()) {
    CAPTURE(row.name);
    memory::release_pool();
    Tensors here = make_inputs(row, DType::f32, Layout::reversed), there;
    for (const Tensor& x : here) {
      const Tensor y =
          Tensor::empty({x.numel()}, x.dtype(), Device::cuda()).view(x.shape(), x.strides());
      copy(y, x);
      there.push_back(y);
    }
    const auto a = differentiate(row, there, Device::cuda()),
               b = differentiate(row, here, Device::cpu());
    check_close(a.value, b.value, tolerance_of(DType::f32));
    for (size_t i = 0; i < b.gradients.size(); ++i)
      if (b.gradients[i].defined())
        check_close(a.gradients[i], b.gradients[i], tolerance_of(DType::f32));
  }
}

TEST_CASE("two runs on a device give the same bits" * needs_device) {
  std::vector<OpCase> rows = op_cases();
  // Sums in several parts.
  rows.push_back({"long layer_norm", {{{300, 5}}, {{5}}, {{5}}}, [](const Tensors& in) {
                    return layer_norm(in[0], in[1], in[2], 1e-5);
                  }});
  rows.push_back({"long embedding", {{{3, 5}}}, [](const Tensors& in) {
                    std::vector<int64_t> ids;
                    for (int64_t i = 0; i < 700; ++i)
                      ids.push_back(i * i % 3);
                    return embedding(in[0], Tensor::from(ids, {700}, in[0].device()));
                  }});
  for (const OpCase& row : rows) {
    CAPTURE(row.name);
    const Tensors inputs = make_inputs(row, DType::f32);
    const auto once = differentiate(row, inputs, Device::cuda());
    const auto twice = differentiate(row, inputs, Device::cuda());
    CHECK(once.value.to_vector<float>() == twice.value.to_vector<float>());
    for (size_t i = 0; i < once.gradients.size(); ++i)
      if (once.gradients[i].defined())
        CHECK(once.gradients[i].to_vector<float>() == twice.gradients[i].to_vector<float>());
  }
}

TEST_CASE("dropout drops the same elements on a device, bit for bit" * needs_device) {
  for (DType dtype : {DType::f32, DType::f64, DType::f16, DType::bf16})
    for (int64_t n : {1, 7, 8, 1001}) {
      const Tensor x = rand({n}, 5, dtype);
      Generator here{.seed = 9, .offset = 3}, there = here;
      CHECK(dropout(x.to(Device::cuda()), 0.3f, there).to_vector<double>() ==
            dropout(x, 0.3f, here).to_vector<double>());
      CHECK(there.offset == here.offset);
    }
}

// Longer than what one warp, one block or one part of a sum does.
TEST_CASE("long rows and long sums on a device are those of the CPU" * needs_device) {
  const auto row = [](std::string name, std::vector<OpInput> inputs,
                      std::function<Tensor(const Tensors&)> function) {
    compare({std::move(name), std::move(inputs), std::move(function)}, DType::f32,
            Layout::contiguous);
  };
  row("long sum", {{{40000}}}, [](const Tensors& in) { return sum(in[0]); });
  row("long columns", {{{600, 70}}}, [](const Tensors& in) { return sum(in[0], {0}); });
  row("long norm", {{{40000}}}, [](const Tensors& in) { return norm(in[0]); });
  row("long softmax", {{{3, 1500}}}, [](const Tensors& in) { return softmax(in[0]); });
  row("long log_softmax", {{{3, 1500}}}, [](const Tensors& in) { return log_softmax(in[0]); });
  row("wide layer_norm", {{{9, 1500}}, {{1500}}, {{1500}}},
      [](const Tensors& in) { return layer_norm(in[0], in[1], in[2], 1e-12); });
  row("many losses", {{{5000}}, {{5000}}},
      [](const Tensors& in) { return mse_loss(in[0], in[1]); });
  row("wide embedding",
      {{{7, 130}},
       {{40},
        0,
        0,
        [] {
          std::vector<double> ids;
          for (int i = 0; i < 40; ++i)
            ids.push_back(i * i % 7);
          return ids;
        }(),
        DType::i64}},
      [](const Tensors& in) { return embedding(in[0], in[1], 2); });
}

// Gradients are quarters up to 16, of which every sum of so many is exact in any order.
TEST_CASE("rows of an embedding on a device add up as often as their ids occur" * needs_device) {
  struct Size {
    int64_t tokens, rows, dim;
  };
  for (const auto [tokens, rows, dim] : {Size{1, 3, 5},
                                         {15, 4, 64},
                                         {16, 1, 65},
                                         {17, 5, 3},
                                         {255, 40, 2},
                                         {256, 1, 1},
                                         {257, 300, 3},
                                         {700, 7, 130},
                                         {4097, 1, 1},
                                         {4500, 900, 1}})
    for (const bool padded : {false, true}) {
      CAPTURE(tokens);
      CAPTURE(rows);
      CAPTURE(padded);
      memory::release_pool();
      std::vector<int64_t> ids;
      std::vector<float> dy;
      for (int64_t i = 0; i < tokens; ++i)
        ids.push_back((i * i + i / 3) % rows);
      for (int64_t i = 0; i < tokens * dim; ++i)
        dy.push_back(float(i * 7 % 129 - 64) / 4);
      std::vector<std::vector<float>> sums;
      for (const Device device : {Device::cpu(), Device::cuda()}) {
        Tensor weight = Tensor::zeros({rows, dim}, DType::f32, device);
        weight.set_requires_grad();
        embedding(weight, Tensor::from(ids, {tokens}, device),
                  padded ? std::optional(rows - 1) : std::nullopt)
            .backward(Tensor::from(dy, {tokens, dim}, device));
        sums.push_back(weight.grad().to_vector<float>());
      }
      CHECK(sums[0] == sums[1]);
    }
}

TEST_CASE("weights of layer_norm on a device get the gradients of all rows" * needs_device) {
  for (const auto& shape : {Shape{1, 3}, {7, 64}, {8, 65}, {17, 130}, {300, 5}, {2100, 3}}) {
    CAPTURE(shape);
    compare({"layer_norm",
             {{shape}, {{shape[1]}}, {{shape[1]}}},
             [](const Tensors& in) { return layer_norm(in[0], in[1], in[2], 1e-5); }},
            shape[0] > 100 ? DType::f64 : DType::f32, Layout::contiguous);
  }
}

// What the host does not know of indices: those that the device has computed.
TEST_CASE("an index out of range that a device has computed is reported at the next wait" *
          needs_device) {
  const Device gpu = Device::cuda();
  const auto computed = [&](const std::vector<int64_t>& ids) {
    const Tensor there = Tensor::empty({int64_t(ids.size())}, DType::i64, gpu);
    copy(there, convert(Tensor::from(std::vector<double>(ids.begin(), ids.end()),
                                     {int64_t(ids.size())}, gpu),
                        DType::i64));
    return there;
  };
  const auto error_of = [](const auto& work) -> std::string {
    try {
      work();
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  const std::string end =
      "; the device found it, and what it has computed since then does not count";
  const Tensor table = rand({5, 3}, 2).to(gpu), logits = rand({4, 3}, 3).to(gpu);

  const Tensor right = embedding(table, computed({4, 0, 4}));
  CHECK(right.to_vector<float>() ==
        embedding(table, Tensor::from(std::vector<int64_t>{4, 0, 4}, {3}, gpu)).to_vector<float>());

  const Tensor y = embedding(table, computed({1, 9, -2}));  // neither throws nor waits
  const Tensor loss = cross_entropy(logits, computed({0, 1, 3, 2}));
  CHECK(error_of([&] { loss.item(); }) ==
        "embedding: id 9 at position 1 is outside a table of 5 rows" + end);
  CHECK(error_of([&] { loss.item(); }).empty());  // once

  const Tensor other = cross_entropy(logits, computed({0, -100, 3, 2}));
  CHECK(error_of([&] { other.item(); }) ==
        "cross_entropy: target 3 of row 2 is outside the 3 classes" + end);
  const Tensor picked = index_select(logits, 1, computed({0, -1}));
  CHECK(
      error_of([&] { picked.to_vector<float>(); }) ==
      "index_select: index -1 at position 1 is out of range for dim 1 of shape [4, 3] (extent 3)" +
          end);
}

}  // namespace
}  // namespace minim
