#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include <cuda_runtime.h>

#include "core/product.h"

namespace minim::cuda {

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
