#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include <cublasLt.h>

// A stand-in for the part of cuBLASLt that the project calls: defined against the toolkit's own
// header, run as work on the emulated device's streams, and as particular as the library is. It
// knows real types, column-major layouts, and the epilogues for a bias and its gradient.
namespace minim::emulator {

// Why the last call that failed did, in more words than its status.
std::string blas_explanation();
// Handles, descriptors, layouts and preferences that nobody destroyed.
size_t live_blas_objects();

struct MatrixLayout {
  cudaDataType type = CUDA_R_32F;
  uint64_t rows = 0, columns = 0;
  int64_t stride = 0;  // between columns
  int32_t batch = 1;
  int64_t batch_stride = 0;

  bool operator==(const MatrixLayout&) const = default;
};

struct MatmulOperation {
  cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
  cudaDataType scale = CUDA_R_32F;
  int32_t transposed_a = CUBLAS_OP_N, transposed_b = CUBLAS_OP_N;
  uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  void* vector = nullptr;  // the bias, or where its gradient goes
};

// A product as it is given to a stream: d = alpha * op(a) op(b) + beta * c, and the epilogue.
struct MatmulWork {
  MatmulOperation operation;
  MatrixLayout a, b, c, d;
  const void *a_data = nullptr, *b_data = nullptr, *c_data = nullptr;
  void* d_data = nullptr;
  double alpha = 1, beta = 0;
  void* workspace = nullptr;
  size_t workspace_bytes = 0;  // that the algorithm uses

  int64_t inner() const {
    return int64_t(operation.transposed_a == CUBLAS_OP_N ? a.columns : a.rows);
  }
};

// Bytes of one element; 0 for types that the stand-in does not know.
size_t bytes_of(cudaDataType type);

// Checks every byte that the product touches, and computes it.
void run_matmul(const MatmulWork& work);

}  // namespace minim::emulator
