#pragma once

#include <string_view>

#include "core/tensor.h"

// What operations share; private to autograd/ops/.
namespace minim {

// Throws unless both lie on one device.
inline void check_same_device(std::string_view op, const Tensor& a, const Tensor& b) {
  check(a.device() == b.device(), "{}: devices {} and {} differ; copy one with to()", op,
        a.device(), b.device());
}

// Throws unless both have one dtype and lie on one device.
inline void check_alike(std::string_view op, const Tensor& a, const Tensor& b) {
  check(a.dtype() == b.dtype(), "{}: dtypes {} and {} differ; convert one with to()", op,
        name_of(a.dtype()), name_of(b.dtype()));
  check_same_device(op, a, b);
}

// An index tensor, contiguous, where its values can be checked: a copy, which waits for the work of
// a device, unless it is on the CPU.
inline Tensor on_host(const Tensor& index) {
  return index.contiguous().to(Device::cpu());
}

// Throws unless the dtype is floating.
inline void check_floating(std::string_view op, const Tensor& x) {
  check(is_floating(x.dtype()), "{}: needs f32, f64, f16 or bf16, got {}", op, name_of(x.dtype()));
}

// The dtype in which f16 and bf16 are computed: f32; others in their own.
inline DType compute_dtype(DType dtype) {
  return dtype == DType::f64 ? DType::f64 : DType::f32;
}

// Sums a gradient over the dims that an operand of `shape` was broadcast along.
Tensor sum_to(const Tensor& dy, const Shape& shape);

// The gradient by x of y = softmax(x) over the last dim.
Tensor softmax_gradient(const Tensor& y, const Tensor& dy);

}  // namespace minim
