#include "core/random.h"
#include "tests/autograd/op_cases.h"

namespace minim {

namespace {

// The same values with the first dimension innermost.
Tensor reversed(const Tensor& x) {
  Shape strides = x.shape();
  int64_t step = 1;
  for (int i = 0; i < x.rank(); ++i) {
    strides[i] = step;
    step *= x.shape()[i];
  }
  const Tensor y = Tensor::empty({x.numel()}, x.dtype()).view(x.shape(), strides);
  copy(y, x);
  return y;
}

Tensor make_input(const OpCase& op_case, size_t place, DType dtype, DType rounded_to) {
  const OpInput& input = op_case.inputs[place];
  Tensor x = Tensor::empty(input.shape, DType::f64);
  if (input.values.empty())
    fill_uniform(x, input.low, input.high, place, op_case.name);
  else
    x = Tensor::from(input.values, input.shape);
  if (!is_floating(input.dtype)) return convert(x, input.dtype);
  return convert(convert(x, rounded_to), dtype);
}

}  // namespace

Tensors make_inputs(const OpCase& op_case, DType dtype, Layout layout, DType rounded_to) {
  Tensors inputs;
  for (size_t i = 0; i < op_case.inputs.size(); ++i) {
    const Tensor x = make_input(op_case, i, dtype, rounded_to);
    inputs.push_back(layout == Layout::reversed ? reversed(x) : x);
  }
  return inputs;
}

}  // namespace minim
