#pragma once

#include <cstdint>

namespace minim {

// One operand of a matrix product: row-major memory whose rows are `stride` elements apart,
// read as it lies or transposed.
template <class T>
struct Matrix {
  const T* data;
  int64_t stride;
  bool transposed = false;
};

// c = alpha * a b + beta * c, with a: [m, k], b: [k, n] after transposition, c: [m, n] row-major
// with rows `c_stride` apart. beta = 0 overwrites c without reading it. The bits of the result
// depend on the shapes alone, not on the number of threads. T is float or double.
template <class T>
void gemm(int64_t m, int64_t n, int64_t k, T alpha, Matrix<T> a, Matrix<T> b, T beta, T* c,
          int64_t c_stride);

// The same on the calling thread alone, for callers that are parallel themselves.
template <class T>
void gemm_serial(int64_t m, int64_t n, int64_t k, T alpha, Matrix<T> a, Matrix<T> b, T beta, T* c,
                 int64_t c_stride);

}  // namespace minim
