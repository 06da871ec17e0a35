#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include <cuda_runtime_api.h>

// For stand-ins of libraries that work on streams and device memory, such as cuBLAS.
namespace minim::emulator {

// Rows of bytes in device memory, `pitch` bytes from one to the next: a matrix with a leading
// dimension.
struct Matrix {
  const void* data = nullptr;
  size_t row_bytes = 0, rows = 1, pitch = 0;
};

// Gives a function to a stream (or to the graph it is captured into). When it runs it may use
// device memory. All operands must lie in live allocations, be ordered with other streams' work,
// and those that it reads be written; the last two where the checks are on. `name` begins what is
// reported.
cudaError_t run_library(const char* name, cudaStream_t stream, std::vector<Matrix> reads,
                        std::vector<Matrix> writes, std::function<void()> function);

}  // namespace minim::emulator
