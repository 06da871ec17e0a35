#pragma once

#include <cstdint>

#include "core/random.h"

namespace minim {

// Attention over packed sequences, head by head: softmax(scale * q kᵀ) v within each sequence.
// Sequence s owns query rows query_offsets[s] .. query_offsets[s + 1] and attends to key rows
// key_begin[s] .. key_end[s]. T is float or double.
template <class T>
struct AttentionArgs {
  const T *q, *k, *v;  // q: [query rows, heads * head_dim]; k, v: [key rows, heads * head_dim]
  int64_t sequences, heads, head_dim;
  const int32_t *query_offsets, *key_begin, *key_end;
  T scale;
  DropoutMask dropout;  // on the probabilities

  int64_t dim() const { return heads * head_dim; }
  int64_t query_rows() const { return query_offsets[sequences]; }
};

// Philox blocks that dropout on all probabilities uses.
int64_t attention_dropout_blocks(int64_t sequences, int64_t heads, const int32_t* query_offsets,
                                 const int32_t* key_begin, const int32_t* key_end);

// y: [query rows, dim]; log_sum_exp: [query rows, heads] is what the backward needs to recompute
// the probabilities, which are never stored. A query without any key gets zeros.
template <class T>
void attention_forward(const AttentionArgs<T>& args, T* y, T* log_sum_exp);

// Gradients, all overwritten: dq like q, dk and dv: [key_rows, dim].
template <class T>
void attention_backward(const AttentionArgs<T>& args, int64_t key_rows, const T* y,
                        const T* log_sum_exp, const T* dy, T* dq, T* dk, T* dv);

}  // namespace minim
