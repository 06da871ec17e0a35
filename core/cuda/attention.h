#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include "core/dtype.h"
#include "core/portable.h"
#include "core/random.h"

namespace minim::cuda {

// Attention over packed sequences on the device, as core/attention.h defines it: the same rows, key
// ranges and dropout masks. T is f32, f64, f16 or bf16; arithmetic is float, or double for f64.
template <class T>
struct AttentionArgs {
  const T *q, *k, *v;  // q: [query rows, heads * head_dim]; k, v: [key rows, heads * head_dim]
  int64_t sequences, heads, head_dim;
  // On the device: [sequences + 1], [sequences], [sequences]. No two sequences share a key row.
  const int32_t *query_offsets, *key_begin, *key_end;
  // About how many queries and keys the longest sequence has. They size the grid: any numbers give
  // the same bits, too small ones keep too few threads busy, too large ones start idle blocks.
  int64_t max_queries = 1, max_keys = 1;
  Compute<T> scale;
  DropoutMask dropout;  // on the probabilities

  HD int64_t dim() const { return heads * head_dim; }
};

// The most that head_dim can be.
inline constexpr int64_t max_head_dim = 256;

// y: [query rows, dim]; log_sum_exp: [query rows, heads] for the backward. A query without any key
// gets zeros. Sequences of one length get the same bits wherever they stand in a batch.
template <class T>
void attention_forward(const AttentionArgs<T>& args, T* y, Compute<T>* log_sum_exp,
                       cudaStream_t stream);

// Gradients, all overwritten: dq like q, dk and dv: [key_rows, dim]; zero for rows that are
// nobody's key. `delta` is scratch like log_sum_exp. Sums have a fixed order: two runs give the
// same bits.
template <class T>
void attention_backward(const AttentionArgs<T>& args, int64_t key_rows, const T* y,
                        const Compute<T>* log_sum_exp, const T* dy, T* dq, T* dk, T* dv,
                        Compute<T>* delta, cudaStream_t stream);

}  // namespace minim::cuda
