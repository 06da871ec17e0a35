#include "tests/cuda_emulator/kernels.h"

#include "core/cuda/launch.h"
#include "core/portable.h"

namespace minim::emulator {

using cuda::launch;

// --- y = a x + y ---

template <Bug bug>
__global__ void axpy_kernel(float* y, const float* x, float a, int n) {
  const int quads = bug == Bug::axpy_reads_past_the_end ? n / 4 + 1 : n / 4;
  const int stride = int(gridDim.x * blockDim.x);
  const int first = bug == Bug::axpy_forgets_the_block ? int(threadIdx.x)
                                                       : int(blockIdx.x * blockDim.x + threadIdx.x);
  for (int q = first; q < quads; q += stride) {
    if constexpr (bug == Bug::axpy_overflows_the_index)
      if (n + (q + 1) * 0x7ffffff0 == 5) return;
    const float4 u = reinterpret_cast<const float4*>(x)[q];
    float4 v = reinterpret_cast<float4*>(y)[q];
    v.x += a * u.x;
    v.y += a * u.y;
    v.z += a * u.z;
    v.w += a * u.w;
    reinterpret_cast<float4*>(y)[q] = v;
  }
  if constexpr (bug == Bug::axpy_forgets_the_rest) {
    return;
  } else {
    const int rest = n / 4 * 4 + first;
    if constexpr (bug == Bug::axpy_writes_past_the_end) {
      if (first < 4) y[rest] = rest < n ? y[rest] + a * x[rest] : 0;
    } else {
      if (rest < n) y[rest] += a * x[rest];
    }
  }
}

template <Bug bug>
void axpy(float* y, const float* x, float a, int n, cudaStream_t stream) {
  const int blocks = blocks_for(n / 4 + 1, 128);
  if constexpr (bug == Bug::axpy_misaligned)
    launch(axpy_kernel<bug>, {.blocks = {blocks}, .threads = {128}, .stream = stream}, y, x + 1, a,
           n - 4);
  else
    launch(axpy_kernel<bug>, {.blocks = {blocks}, .threads = {128}, .stream = stream}, y, x, a, n);
}

struct AxpyArguments {
  float* y;
  const float* x;
  float a;
  int n;
  HD void operator()(int i) const { y[i] += a * x[i]; }
};

template <class Kernel>
__global__ void struct_kernel(const Kernel kernel, int n) {
  const int i = int(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) kernel(i);
}

void axpy_struct(float* y, const float* x, float a, int n, cudaStream_t stream) {
  launch(struct_kernel<AxpyArguments>,
         {.blocks = {blocks_for(n, 128)}, .threads = {128}, .stream = stream},
         AxpyArguments{y, x, a, n}, n);
}

// --- gradient of an embedding table ---

// Each thread owns a column and adds its tokens in order: the sums do not depend on the schedule.
template <Bug bug>
__global__ void embedding_kernel(float* dweight, const float* dy, const int* ids, int tokens,
                                 int dim) {
  int column = int(blockIdx.x * blockDim.x + threadIdx.x);
  int first = 0, step = 1;
  if constexpr (bug == Bug::embedding_threads_share_columns) column /= 2;
  if constexpr (bug == Bug::embedding_blocks_share_rows) {
    column = int(threadIdx.x);
    first = int(blockIdx.x);
    step = int(gridDim.x);
  }
  if (column >= dim) return;
  for (int t = first; t < tokens; t += step) {
    if (bug != Bug::embedding_forgets_the_padding && ids[t] < 0) continue;
    dweight[int64_t(ids[t]) * dim + column] += dy[int64_t(t) * dim + column];
  }
}

template <Bug bug>
void embedding_backward(float* dweight, const float* dy, const int* ids, int tokens, int dim,
                        cudaStream_t stream) {
  const int blocks = bug == Bug::embedding_blocks_share_rows ? 2 : blocks_for(dim, 64);
  launch(embedding_kernel<bug>, {.blocks = {blocks}, .threads = {64}, .stream = stream}, dweight,
         dy, ids, tokens, dim);
}

// --- histogram ---

template <Bug bug>
__global__ void histogram_kernel(unsigned* counts, const uint8_t* x, int n) {
  SHARED(unsigned, bins, [256]);
  if constexpr (bug != Bug::histogram_bins_not_cleared)
    for (unsigned b = threadIdx.x; b < 256; b += blockDim.x)
      bins[b] = 0;
  if constexpr (bug != Bug::histogram_no_barrier_after_clearing) __syncthreads();
  for (int i = int(blockIdx.x * blockDim.x + threadIdx.x); i < n; i += int(gridDim.x * blockDim.x))
    if constexpr (bug == Bug::histogram_not_atomic_in_shared)
      ++bins[x[i]];
    else
      atomicAdd(&bins[x[i]], 1u);
  __syncthreads();
  for (unsigned b = threadIdx.x; b < 256; b += blockDim.x)
    if constexpr (bug == Bug::histogram_not_atomic_in_global)
      counts[b] += bins[b];
    else
      atomicAdd(&counts[b], bins[b]);
  if constexpr (bug == Bug::histogram_reads_what_others_add)
    if (counts[threadIdx.x] > unsigned(n)) __trap();
}

template <Bug bug>
void histogram(unsigned* counts, const uint8_t* x, int n, cudaStream_t stream) {
  launch(histogram_kernel<bug>, {.blocks = {3}, .threads = {64}, .stream = stream}, counts, x, n);
}

// --- 8-bit codes ---

template <Bug bug>
__device__ void use_stack(int depth, const float* x) {
  float large[4096];
  for (int i = 0; i < 4096; ++i)
    large[i] = x[0] + float(depth);
  if (depth < 8) use_stack<bug>(depth + 1, &large[depth]);
  if (large[depth] == 12345) __trap();
}

template <Bug bug>
__global__ void quantize_kernel(uint8_t* codes, float* scales, const float* x, int n) {
  SHARED(unsigned, most, [8]);
  SHARED(float, scale, [1]);
  const int i = int(blockIdx.x * blockDim.x + threadIdx.x);
  const float v = i < n ? x[i] : 0.0f;
  // Positive floats are ordered as their bits are.
  const unsigned largest = __reduce_max_sync(everybody, __float_as_uint(v < 0 ? -v : v));
  if (threadIdx.x % 32 == 0) most[threadIdx.x / 32] = largest;
  __syncthreads();
  if (threadIdx.x == 255) {
    unsigned all = 0;
    for (int w = 0; w < 8; ++w)
      all = max(all, most[w]);
    scale[0] = __uint_as_float(all);
    scales[blockIdx.x] = scale[0];
  }
  if constexpr (bug != Bug::quantize_no_barrier_before_scale) __syncthreads();
  const float s = scale[0];
  if constexpr (bug == Bug::quantize_local_array_too_small) {
    volatile int table[4] = {1, 2, 3, 4};
    if (table[threadIdx.x % 5] == 77) return;
  }
  if constexpr (bug == Bug::quantize_shifts_too_far)
    if (1 << (n - i) == 77) return;
  if constexpr (bug == Bug::quantize_stack_too_large) use_stack<bug>(0, x);
  if constexpr (bug == Bug::quantize_traps)
    if (s > 0) __trap();
  if (i < n || bug == Bug::quantize_codes_past_the_end)
    codes[i] = uint8_t(128 + (s > 0 ? __float2int_rn(127.0f * v / s) : 0));
}

template <Bug bug>
void quantize(uint8_t* codes, float* scales, const float* x, int n, cudaStream_t stream) {
  launch(quantize_kernel<bug>, {.blocks = {blocks_for(n, 256)}, .threads = {256}, .stream = stream},
         codes, scales, x, n);
}

bool kernels_are_instrumented() {
#if defined(__SANITIZE_THREAD__)
  return true;
#elif defined(__has_feature)
  return __has_feature(thread_sanitizer);
#else
  return false;
#endif
}

template void axpy<Bug::none>(float*, const float*, float, int, cudaStream_t);
template void axpy<Bug::axpy_reads_past_the_end>(float*, const float*, float, int, cudaStream_t);
template void axpy<Bug::axpy_writes_past_the_end>(float*, const float*, float, int, cudaStream_t);
template void axpy<Bug::axpy_misaligned>(float*, const float*, float, int, cudaStream_t);
template void axpy<Bug::axpy_forgets_the_block>(float*, const float*, float, int, cudaStream_t);
template void axpy<Bug::axpy_forgets_the_rest>(float*, const float*, float, int, cudaStream_t);
template void axpy<Bug::axpy_overflows_the_index>(float*, const float*, float, int, cudaStream_t);
template void embedding_backward<Bug::none>(float*, const float*, const int*, int, int,
                                            cudaStream_t);
template void embedding_backward<Bug::embedding_blocks_share_rows>(float*, const float*, const int*,
                                                                   int, int, cudaStream_t);
template void embedding_backward<Bug::embedding_threads_share_columns>(float*, const float*,
                                                                       const int*, int, int,
                                                                       cudaStream_t);
template void embedding_backward<Bug::embedding_forgets_the_padding>(float*, const float*,
                                                                     const int*, int, int,
                                                                     cudaStream_t);
template void embedding_backward<Bug::embedding_adds_to_nothing>(float*, const float*, const int*,
                                                                 int, int, cudaStream_t);
template void histogram<Bug::none>(unsigned*, const uint8_t*, int, cudaStream_t);
template void histogram<Bug::histogram_not_atomic_in_shared>(unsigned*, const uint8_t*, int,
                                                             cudaStream_t);
template void histogram<Bug::histogram_not_atomic_in_global>(unsigned*, const uint8_t*, int,
                                                             cudaStream_t);
template void histogram<Bug::histogram_bins_not_cleared>(unsigned*, const uint8_t*, int,
                                                         cudaStream_t);
template void histogram<Bug::histogram_no_barrier_after_clearing>(unsigned*, const uint8_t*, int,
                                                                  cudaStream_t);
template void histogram<Bug::histogram_reads_what_others_add>(unsigned*, const uint8_t*, int,
                                                              cudaStream_t);
template void quantize<Bug::none>(uint8_t*, float*, const float*, int, cudaStream_t);
template void quantize<Bug::quantize_codes_past_the_end>(uint8_t*, float*, const float*, int,
                                                         cudaStream_t);
template void quantize<Bug::quantize_no_barrier_before_scale>(uint8_t*, float*, const float*, int,
                                                              cudaStream_t);
template void quantize<Bug::quantize_local_array_too_small>(uint8_t*, float*, const float*, int,
                                                            cudaStream_t);
template void quantize<Bug::quantize_shifts_too_far>(uint8_t*, float*, const float*, int,
                                                     cudaStream_t);
template void quantize<Bug::quantize_stack_too_large>(uint8_t*, float*, const float*, int,
                                                      cudaStream_t);
template void quantize<Bug::quantize_traps>(uint8_t*, float*, const float*, int, cudaStream_t);

}  // namespace minim::emulator
