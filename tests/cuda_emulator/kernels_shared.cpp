#include "core/cuda/launch.h"
#include "core/portable.h"
#include "tests/cuda_emulator/kernels.h"

namespace minim::emulator {

using cuda::launch;

// --- softmax of rows ---

struct Sum {
  HD float operator()(float a, float b) const { return a + b; }
};
struct Max {
  HD float operator()(float a, float b) const { return a > b ? a : b; }
};

template <Bug bug, class Op>
__device__ float reduce_warp(float v, const Op& op) {
  unsigned mask = everybody;
  if (bug == Bug::softmax_mask_without_caller) mask = 0xffff0000u;
  if constexpr (bug == Bug::softmax_shuffle_from_inactive_lane)
    if (threadIdx.x % 32 < 31) return op(v, __shfl_down_sync(0x7fffffffu, v, 1));
  const int width = bug == Bug::softmax_bad_width ? 24 : 32;
  for (int step = 16; step > 0; step /= 2)
    v = op(v, __shfl_xor_sync(mask, v, step, width));
  return v;
}

// The same result for all threads of the block; `partials` has room for one number of each warp.
template <Bug bug, class Op>
__device__ float reduce_block(float v, float identity, const Op& op, float* partials) {
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  v = reduce_warp<bug>(v, op);
  if (lane == 0) partials[warp] = v;
  if constexpr (bug == Bug::softmax_barrier_in_branches) {
    if (warp == 0)
      __syncthreads();
    else
      __syncthreads();
  } else if constexpr (bug == Bug::softmax_barrier_in_loop) {
    for (unsigned i = 0; i <= warp; ++i)
      __syncthreads();
  } else if constexpr (bug != Bug::softmax_no_barrier_after_partials) {
    __syncthreads();
  }
  v = lane < warps ? partials[lane] : identity;
  if constexpr (bug == Bug::softmax_shuffle_in_branch) {
    if (lane < warps) v = reduce_warp<bug>(v, op);
  } else {
    v = reduce_warp<bug>(v, op);
  }
  // The next call may write the partials only when all have read them.
  if constexpr (bug != Bug::softmax_no_barrier_before_reuse) __syncthreads();
  return v;
}

template <Bug bug>
__global__ void softmax_kernel(float* y, float* sums, const float* x, int dim) {
  SHARED(float, partials, [bug == Bug::softmax_partials_too_few ? 3 : 4]);
  const float* in = x + int64_t(blockIdx.x) * dim;
  float* out = y + int64_t(blockIdx.x) * dim;
  const int first = int(threadIdx.x), step = int(blockDim.x);
  if constexpr (bug == Bug::softmax_returns_before_barrier)
    if (first >= dim) return;
  float most = -INFINITY;
  for (int i = first; i < dim; i += step)
    most = in[i] > most ? in[i] : most;
  most = reduce_block<bug>(most, -INFINITY, Max(), partials);
  float sum = 0;
  for (int i = first; i < dim; i += step)
    sum += __expf(in[i] - most);
  sum = reduce_block<bug>(sum, 0.0f, Sum(), partials);
  const int end = bug == Bug::softmax_row_one_too_long ? dim + 1 : dim;
  for (int i = first; i < end; i += step)
    out[i] = __expf(in[i < dim ? i : 0] - most) / sum;
  if (threadIdx.x == 0 || bug == Bug::softmax_everybody_writes) sums[blockIdx.x] = sum;
}

template <Bug bug>
void softmax(float* y, const float* x, int rows, int dim, cudaStream_t stream) {
  float* sums = nullptr;
  cuda::check_cuda(cudaMallocAsync(&sums, size_t(rows) * sizeof(float), stream), "softmax");
  launch(softmax_kernel<bug>, {.blocks = {rows}, .threads = {128}, .stream = stream}, y, sums, x,
         dim);
  cuda::check_cuda(cudaFreeAsync(sums, stream), "softmax");
}

// --- transposed copy ---

constexpr int side = 32;

template <Bug bug>
__global__ void transpose_kernel(float* y, const float* x, int rows, int columns) {
  DYNAMIC_SHARED(float, tile);  // [side][side + 1]
  const int pitch = side + 1;
  const int left = int(blockIdx.x) * side, top = int(blockIdx.y) * side;
  const int column = int(threadIdx.x);
  for (int r = int(threadIdx.y); r < side; r += int(blockDim.y))
    if (top + r < rows && left + column < columns)
      tile[r * pitch + column] = x[int64_t(top + r) * columns + left + column];
  if constexpr (bug != Bug::transpose_no_barrier) __syncthreads();
  for (int r = int(threadIdx.y); r < side; r += int(blockDim.y)) {
    bool inside = left + r < columns && top + column < rows;
    if (bug == Bug::transpose_reads_outside_of_the_edge) inside = left + r < columns;
    if (bug == Bug::transpose_writes_outside) inside = top + column < rows;
    float v = 0;
    if (inside && (bug != Bug::transpose_writes_outside || left + r < columns))
      v = tile[column * pitch + r];
    if (inside) y[int64_t(left + r) * rows + top + column] = v;
  }
}

template <Bug bug>
void transpose(float* y, const float* x, int rows, int columns, cudaStream_t stream) {
  const int height = bug == Bug::transpose_tile_too_small ? side / 2 : side;
  launch(transpose_kernel<bug>,
         {.blocks = {blocks_for(columns, side), blocks_for(rows, side)},
          .threads = {side, 8},
          .shared = size_t(height) * (side + 1) * sizeof(float),
          .stream = stream},
         y, x, rows, columns);
}

template <Bug bug>
__global__ void reverse_kernel(float* y, const float* x) {
  SHARED(float, lanes, [2][32]);
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  lanes[warp][lane] = x[i];
  if constexpr (bug != Bug::transpose_warp_without_syncwarp)
    __syncwarp();
  else
    __shfl_sync(everybody, 0, 0);  // brings the lanes together, but not their memory
  y[i] = lanes[warp][31 - lane];
}

template <Bug bug>
void reverse_in_warps(float* y, const float* x, int n, cudaStream_t stream) {
  launch(reverse_kernel<bug>, {.blocks = {n / 64}, .threads = {64}, .stream = stream}, y, x);
}

template void softmax<Bug::none>(float*, const float*, int, int, cudaStream_t);
template void softmax<Bug::softmax_no_barrier_after_partials>(float*, const float*, int, int,
                                                              cudaStream_t);
template void softmax<Bug::softmax_no_barrier_before_reuse>(float*, const float*, int, int,
                                                            cudaStream_t);
template void softmax<Bug::softmax_returns_before_barrier>(float*, const float*, int, int,
                                                           cudaStream_t);
template void softmax<Bug::softmax_barrier_in_branches>(float*, const float*, int, int,
                                                        cudaStream_t);
template void softmax<Bug::softmax_barrier_in_loop>(float*, const float*, int, int, cudaStream_t);
template void softmax<Bug::softmax_mask_without_caller>(float*, const float*, int, int,
                                                        cudaStream_t);
template void softmax<Bug::softmax_shuffle_in_branch>(float*, const float*, int, int, cudaStream_t);
template void softmax<Bug::softmax_shuffle_from_inactive_lane>(float*, const float*, int, int,
                                                               cudaStream_t);
template void softmax<Bug::softmax_bad_width>(float*, const float*, int, int, cudaStream_t);
template void softmax<Bug::softmax_row_one_too_long>(float*, const float*, int, int, cudaStream_t);
template void softmax<Bug::softmax_everybody_writes>(float*, const float*, int, int, cudaStream_t);
template void softmax<Bug::softmax_partials_too_few>(float*, const float*, int, int, cudaStream_t);
template void transpose<Bug::none>(float*, const float*, int, int, cudaStream_t);
template void transpose<Bug::transpose_no_barrier>(float*, const float*, int, int, cudaStream_t);
template void transpose<Bug::transpose_reads_outside_of_the_edge>(float*, const float*, int, int,
                                                                  cudaStream_t);
template void transpose<Bug::transpose_writes_outside>(float*, const float*, int, int,
                                                       cudaStream_t);
template void transpose<Bug::transpose_tile_too_small>(float*, const float*, int, int,
                                                       cudaStream_t);
template void reverse_in_warps<Bug::none>(float*, const float*, int, cudaStream_t);
template void reverse_in_warps<Bug::transpose_warp_without_syncwarp>(float*, const float*, int,
                                                                     cudaStream_t);

}  // namespace minim::emulator
