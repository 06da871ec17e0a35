#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include <cuda_runtime.h>

#include "core/dtype.h"
#include "core/gemm.h"

namespace minim::cuda {

// c = alpha * a b + beta * c + bias on the device, as core/gemm.h defines it for the host: a: [m,
// k] and b: [k, n] after transposition, c: [m, n] row-major. T is f32, f64, f16 or bf16; sums are
// float, or double for f64.
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

  bool tf32 = false;  // f32 alone: factors are rounded to 11 bits, which tensor cores multiply
};

// Matrix products on one stream, by cuBLASLt. It allocates nothing on the device; what it learns
// about a shape (descriptors, the algorithm) is kept for the next call with it.
class Blas {
 public:
  // What cuBLASLt's kernels for the newest devices ask for.
  static constexpr size_t usual_workspace = size_t(32) << 20;

  // For the current device. The workspace is memory of the device, at a multiple of 256 bytes, that
  // no other stream uses; it must outlive this object. None at all is allowed, and slower.
  Blas(cudaStream_t stream, void* workspace, size_t workspace_bytes);
  ~Blas();
  Blas(const Blas&) = delete;
  Blas& operator=(const Blas&) = delete;

  // Gives a product to the stream. Used by one host thread at a time. Throws Error naming the
  // shapes if they do not fit each other, or if the library refuses.
  template <class T>
  void gemm(const Product<T>& product);

  // Different shapes seen so far.
  size_t shapes() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace minim::cuda
