#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include "core/dtype.h"

// What belongs to a product on the device and cuBLASLt does not do for every type and shape.
namespace minim::cuda {

// c = beta * c + bias for `batch` matrices [m, n], `c_batch` elements apart; bias: [n] or null. c
// is not read where beta = 0.
template <class T>
void scale_and_add_bias(int64_t m, int64_t n, Compute<T> beta, const T* bias, T* c,
                        int64_t c_stride, int64_t batch, int64_t c_batch, cudaStream_t stream);

// sums[i] = sum over p of a[i * row_step + p * step].   sums: [m], p in [0, k)
template <class T>
void sum_rows(int64_t m, int64_t k, const T* a, int64_t row_step, int64_t step, T* sums,
              cudaStream_t stream);

}  // namespace minim::cuda
