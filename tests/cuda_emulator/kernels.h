#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

// Small kernels of the kinds that a transformer and its optimizers are made of, each right and with
// bugs that people make. The emulator must run the first and catch the others.
namespace minim::emulator {

enum class Bug {
  none,
  // y = a x + y, four elements at a time, the rest one by one
  axpy_reads_past_the_end,
  axpy_writes_past_the_end,
  axpy_misaligned,
  axpy_forgets_the_block,
  axpy_forgets_the_rest,
  axpy_overflows_the_index,
  // softmax of rows, one block each
  softmax_no_barrier_after_partials,
  softmax_no_barrier_before_reuse,
  softmax_returns_before_barrier,
  softmax_barrier_in_branches,
  softmax_barrier_in_loop,
  softmax_mask_without_caller,
  softmax_shuffle_in_branch,
  softmax_shuffle_from_inactive_lane,
  softmax_bad_width,
  softmax_row_one_too_long,
  softmax_everybody_writes,
  softmax_partials_too_few,
  // transposed copy through a tile of shared memory
  transpose_no_barrier,
  transpose_reads_outside_of_the_edge,
  transpose_writes_outside,
  transpose_tile_too_small,
  transpose_warp_without_syncwarp,
  // gradient of an embedding table, the same sums in every run
  embedding_blocks_share_rows,
  embedding_threads_share_columns,
  embedding_forgets_the_padding,
  embedding_adds_to_nothing,
  // how often each byte occurs
  histogram_not_atomic_in_shared,
  histogram_not_atomic_in_global,
  histogram_bins_not_cleared,
  histogram_no_barrier_after_clearing,
  histogram_reads_what_others_add,
  // 8-bit codes and a scale for each block of 256 numbers
  quantize_codes_past_the_end,
  quantize_no_barrier_before_scale,
  quantize_local_array_too_small,
  quantize_shifts_too_far,
  quantize_stack_too_large,
  quantize_traps,
};

// The mask of a whole warp.
inline constexpr unsigned everybody = 0xffffffffu;
// Blocks of so many threads that n elements take.
inline int blocks_for(int n, int threads) {
  return (n + threads - 1) / threads;
}

// y[i] += a * x[i].   x, y: [n]
template <Bug bug = Bug::none>
void axpy(float* y, const float* x, float a, int n, cudaStream_t stream = nullptr);
// The same by a kernel that gets its pointers in a struct.
void axpy_struct(float* y, const float* x, float a, int n, cudaStream_t stream = nullptr);
// y = softmax of each row of x.   x, y: [rows, dim]
template <Bug bug = Bug::none>
void softmax(float* y, const float* x, int rows, int dim, cudaStream_t stream = nullptr);
// y = x transposed.   x: [rows, columns], y: [columns, rows]
template <Bug bug = Bug::none>
void transpose(float* y, const float* x, int rows, int columns, cudaStream_t stream = nullptr);
// y = each 32 elements of x in the reverse order.   x, y: [n], a multiple of 64
template <Bug bug = Bug::none>
void reverse_in_warps(float* y, const float* x, int n, cudaStream_t stream = nullptr);
// dweight[ids[t]] += dy[t]; a negative id is padding.   dweight: [rows, dim], dy: [tokens, dim]
template <Bug bug = Bug::none>
void embedding_backward(float* dweight, const float* dy, const int* ids, int tokens, int dim,
                        cudaStream_t stream = nullptr);
// counts[b] += how often x has byte b.   counts: [256]
template <Bug bug = Bug::none>
void histogram(unsigned* counts, const uint8_t* x, int n, cudaStream_t stream = nullptr);
// scales = largest |x| of each 256 numbers; codes = 127 x / scale, rounded, plus 128.
//   x, codes: [n], scales: [blocks]
template <Bug bug = Bug::none>
void quantize(uint8_t* codes, float* scales, const float* x, int n, cudaStream_t stream = nullptr);

// Were the kernels compiled so that every access is checked?
bool kernels_are_instrumented();

// Kernels without barriers, with four, and with five shuffles for each thread; for their speed. The
// first set is compiled without instrumentation, the second with.
struct SpeedKernels {
  void (*scale)(float* y, const float* x, int n);
  void (*barriers)(float* y, const float* x, int n);
  void (*shuffles)(float* y, const float* x, int n);
  void (*nothing)();
  void (*write_behind)(float* y, int n);  // y[n] = 0
};
SpeedKernels plain_kernels();
SpeedKernels instrumented_kernels();

}  // namespace minim::emulator
