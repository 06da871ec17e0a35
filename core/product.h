#pragma once

#include <cstdint>

#include "core/device.h"
#include "core/dtype.h"
#include "core/gemm.h"

namespace minim {

// c = alpha * a b + beta * c + bias, as core/gemm.h defines it.   a: [m, k] and b: [k, n] after
// transposition, c: [m, n] row-major. T is f32, f64, f16 or bf16; sums are float, or double for
// f64.
template <class T>
struct Product {
  int64_t m, n, k;
  Matrix<T> a, b;
  T* c;
  int64_t c_stride;  // between rows
  Compute<T> alpha = 1;
  Compute<T> beta = 0;  // 0 overwrites c without reading it

  const T* bias = nullptr;  // [n], added to each row
  // [m], gets the sum of each row of a: the gradient of a bias where c is a weight's, a being dyᵀ.
  T* a_sums = nullptr;

  // Several products at once, whose matrices begin so many elements apart; 0 takes the same a or b
  // for all of them.
  int64_t batch = 1, a_batch = 0, b_batch = 0, c_batch = 0;

  bool tf32 = false;  // f32 on CUDA: factors are rounded to 11 bits, which tensor cores multiply
};

// Computes a product on the device where its memory lies. The CPU knows f32 and f64 alone, and no
// a_sums.
template <class T>
void multiply(Device device, const Product<T>& product);

namespace cuda {
// The same on a CUDA device.
template <class T>
void multiply(Device device, const Product<T>& product);
}  // namespace cuda

// The dtype in which a device multiplies matrices of another: the CPU widens f16 and bf16 to f32.
inline DType product_dtype(DType dtype, Device device) {
  const bool wide = device.is_cuda() || dtype == DType::f64;
  return wide ? dtype : DType::f32;
}

}  // namespace minim
