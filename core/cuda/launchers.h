#pragma once

#include <algorithm>
#include <cstdint>

#include "core/cuda/groups.h"

// The launchers of core/launch.h on a device: the same kernels, structs whose operator() is HD.
namespace minim::cuda {

inline constexpr int block_threads = 256;
// A row of up to this many elements is done by a warp, a longer one by a block.
inline constexpr int64_t warp_row = 1024;
// Enough blocks to fill any device several times over; more is done in turns.
inline constexpr int64_t most_blocks = 8192;

template <class Kernel>
__global__ void __launch_bounds__(block_threads) elements_kernel(const Kernel kernel, int64_t n) {
  const int64_t stride = int64_t(gridDim.x) * blockDim.x;
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += stride)
    kernel(i);
}

template <class Kernel>
__global__ void __launch_bounds__(block_threads)
    warp_rows_kernel(const Kernel kernel, int64_t rows) {
  const int64_t warps = blockDim.x / warp_lanes;
  const int64_t stride = int64_t(gridDim.x) * warps;
  for (int64_t row = int64_t(blockIdx.x) * warps + threadIdx.x / warp_lanes; row < rows;
       row += stride)
    kernel(WarpGroup(), row);
}

template <class Kernel>
__global__ void __launch_bounds__(block_threads)
    block_rows_kernel(const Kernel kernel, int64_t rows) {
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x)
    kernel(BlockGroup(), row);
}

// Runs kernel(i) for each i in [0, n).
template <class Kernel>
void launch_elements(int64_t n, const Kernel& kernel, cudaStream_t stream) {
  if (n == 0) return;
  const int64_t blocks = std::min((n + block_threads - 1) / block_threads, most_blocks);
  launch(elements_kernel<Kernel>,
         {.blocks = {blocks}, .threads = {block_threads}, .stream = stream}, kernel, n);
}

// Runs kernel(group, row) for each row in [0, rows); `row_size` elements of work lie in each.
template <class Kernel>
void launch_rows(int64_t rows, int64_t row_size, const Kernel& kernel, cudaStream_t stream) {
  if (rows == 0) return;
  const bool by_warp = row_size <= warp_row;
  const int64_t per_block = by_warp ? block_threads / warp_lanes : 1;
  const int64_t blocks = std::min((rows + per_block - 1) / per_block, most_blocks);
  launch(by_warp ? warp_rows_kernel<Kernel> : block_rows_kernel<Kernel>,
         {.blocks = {blocks}, .threads = {block_threads}, .stream = stream}, kernel, rows);
}

}  // namespace minim::cuda
