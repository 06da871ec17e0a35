#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/tensor.h"

// A test case is data: one row buys an operation its value, gradient, layout and half-precision
// tests.
namespace minim {

// One input: given values, or draws from U[low, high) that depend on the case's name and the
// input's place. Integers are given as values and stay integers.
struct OpInput {
  Shape shape;
  double low = -1, high = 1;
  std::vector<double> values = {};
  DType dtype = DType::f32;  // f32 stands for any floating dtype
};

struct OpCase {
  std::string name;
  std::vector<OpInput> inputs;
  std::function<Tensor(const Tensors&)> function;
  // The result of given values, where the row states it.
  std::vector<double> expected = {};
  // The function has no kink within a gradcheck step of its inputs, and a derivative.
  bool smooth = true;
};

// Every operation of autograd/ops.h, the functors by way of their lists.
const std::vector<OpCase>& op_cases();

// Memory order of the inputs: last dimension innermost, or first dimension innermost.
enum class Layout { contiguous, reversed };

// The inputs of a case with floating ones in `dtype`, their values first rounded to `rounded_to`.
Tensors make_inputs(const OpCase& op_case, DType dtype, Layout layout = Layout::contiguous,
                    DType rounded_to = DType::f64);

}  // namespace minim
