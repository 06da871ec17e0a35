#pragma once

#include <cstddef>

#include <cuda_runtime_api.h>

namespace minim::cuda {

// Writes a few kilobytes of the host to a device, in the order of the stream, without waiting and
// without pinned memory: they travel as arguments of kernels. `bytes` is a multiple of 4.
void store(void* to, const void* host, size_t bytes, cudaStream_t stream);

}  // namespace minim::cuda
