#include "core/cuda/gemm_rest.h"

#include <algorithm>

#include "core/cuda/launch.h"

namespace minim::cuda {

namespace {

constexpr int64_t threads = 256;
constexpr int64_t most_blocks = 4096;

template <class T>
__global__ void __launch_bounds__(threads)
    scale_and_add_bias_kernel(int64_t m, int64_t n, Compute<T> beta, const T* bias, T* c,
                              int64_t c_stride, int64_t batch, int64_t c_batch) {
  const int64_t step = int64_t(gridDim.x) * threads;
  for (int64_t i = int64_t(blockIdx.x) * threads + threadIdx.x; i < batch * m * n; i += step) {
    const int64_t column = i % n, row = i / n % m;
    T& out = c[i / (m * n) * c_batch + row * c_stride + column];
    Compute<T> value = bias != nullptr ? Compute<T>(bias[column]) : Compute<T>(0);
    if (beta != 0) value += beta * Compute<T>(out);
    out = T(value);
  }
}

// A block sums 32 rows of a; its 8 warps take every 8th element each.
constexpr int rows_of_block = 32, parts = 8;

template <class T>
__global__ void __launch_bounds__(rows_of_block* parts)
    sum_rows_kernel(int64_t m, int64_t k, const T* a, int64_t row_step, int64_t step, T* sums) {
  using C = Compute<T>;
  SHARED(C, partials, [parts][rows_of_block]);
  const int x = int(threadIdx.x), part = int(threadIdx.y);
  const int64_t row = int64_t(blockIdx.x) * rows_of_block + x;
  C sum = 0;
  if (row < m)
    for (int64_t p = part; p < k; p += parts)
      sum += C(a[row * row_step + p * step]);
  partials[part][x] = sum;
  __syncthreads();
  if (part > 0 || row >= m) return;
  for (int other = 1; other < parts; ++other)
    sum += partials[other][x];
  sums[row] = T(sum);
}

}  // namespace

template <class T>
void scale_and_add_bias(int64_t m, int64_t n, Compute<T> beta, const T* bias, T* c,
                        int64_t c_stride, int64_t batch, int64_t c_batch, cudaStream_t stream) {
  const int64_t blocks = std::min((batch * m * n + threads - 1) / threads, most_blocks);
  if (blocks > 0)
    launch(scale_and_add_bias_kernel<T>,
           {.blocks = {blocks}, .threads = {threads}, .stream = stream}, m, n, beta, bias, c,
           c_stride, batch, c_batch);
}

template <class T>
void sum_rows(int64_t m, int64_t k, const T* a, int64_t row_step, int64_t step, T* sums,
              cudaStream_t stream) {
  const int64_t blocks = (m + rows_of_block - 1) / rows_of_block;
  if (blocks > 0)
    launch(sum_rows_kernel<T>,
           {.blocks = {blocks}, .threads = {rows_of_block, parts}, .stream = stream}, m, k, a,
           row_step, step, sums);
}

template void scale_and_add_bias(int64_t, int64_t, float, const float*, float*, int64_t, int64_t,
                                 int64_t, cudaStream_t);
template void scale_and_add_bias(int64_t, int64_t, double, const double*, double*, int64_t, int64_t,
                                 int64_t, cudaStream_t);
template void scale_and_add_bias(int64_t, int64_t, float, const f16*, f16*, int64_t, int64_t,
                                 int64_t, cudaStream_t);
template void scale_and_add_bias(int64_t, int64_t, float, const bf16*, bf16*, int64_t, int64_t,
                                 int64_t, cudaStream_t);
template void sum_rows(int64_t, int64_t, const float*, int64_t, int64_t, float*, cudaStream_t);
template void sum_rows(int64_t, int64_t, const double*, int64_t, int64_t, double*, cudaStream_t);
template void sum_rows(int64_t, int64_t, const f16*, int64_t, int64_t, f16*, cudaStream_t);
template void sum_rows(int64_t, int64_t, const bf16*, int64_t, int64_t, bf16*, cudaStream_t);

}  // namespace minim::cuda
