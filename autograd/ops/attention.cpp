#include "core/attention.h"

#include <cmath>

#include "autograd/ops.h"
#include "autograd/ops/checks.h"

namespace minim {

namespace {

// Checks everything that the kernels index with, and describes it for them.
template <class T>
AttentionArgs<T> attention_args(const Tensor& q, const Tensor& k, const Tensor& v,
                                const AttentionRows& rows, int64_t heads, DropoutMask dropout) {
  const int64_t head_dim = q.size(1) / heads;
  return {q.data<T>(),
          k.data<T>(),
          v.data<T>(),
          rows.key_begin.numel(),
          heads,
          head_dim,
          rows.query_offsets.data<int32_t>(),
          rows.key_begin.data<int32_t>(),
          rows.key_end.data<int32_t>(),
          T(1 / std::sqrt(double(head_dim))),
          dropout};
}

void check_rows(const Tensor& q, const Tensor& k, const AttentionRows& rows) {
  const int64_t sequences = rows.key_begin.numel();
  check(rows.query_offsets.shape() == Shape{sequences + 1} &&
            rows.key_end.shape() == Shape{sequences},
        "attention: query_offsets {}, key_begin {} and key_end {} do not belong to one batch",
        rows.query_offsets.shape(), rows.key_begin.shape(), rows.key_end.shape());
  const auto offsets = rows.query_offsets.values<int32_t>();
  const auto begin = rows.key_begin.values<int32_t>(), end = rows.key_end.values<int32_t>();
  check(offsets[0] == 0 && offsets.back() == q.size(0),
        "attention: query_offsets run from {} to {}, the queries have {} rows", offsets[0],
        offsets.back(), q.size(0));
  int32_t used = 0;  // key rows of the sequences before
  for (size_t s = 0; s < size_t(sequences); ++s) {
    check(
        offsets[s] <= offsets[s + 1] && 0 <= begin[s] && begin[s] <= end[s] && end[s] <= k.size(0),
        "attention: sequence {} has queries {}..{} and keys {}..{} of {} rows", s, offsets[s],
        offsets[s + 1], begin[s], end[s], k.size(0));
    if (begin[s] == end[s]) continue;
    // Sequences are worked on at the same time, and each writes its keys' gradients.
    check(begin[s] >= used,
          "attention: sequence {} has keys {}..{}, but rows before {} are keys of another", s,
          begin[s], end[s], used);
    used = end[s];
  }
}

}  // namespace

Tensor attention(const Tensor& any_q, const Tensor& any_k, const Tensor& any_v,
                 const AttentionRows& rows, int64_t heads, float dropout_p, Generator& generator) {
  check_floating("attention", any_q);
  check_same_dtype("attention", any_q, any_k);
  check_same_dtype("attention", any_q, any_v);
  check(any_q.rank() == 2 && any_k.rank() == 2 && any_k.shape() == any_v.shape() &&
            any_q.size(1) == any_k.size(1),
        "attention: q {}, k {} and v {} must be [rows, dim] with one dim", any_q.shape(),
        any_k.shape(), any_v.shape());
  check(heads > 0 && any_q.size(1) % heads == 0, "attention: {} heads do not divide dim {}", heads,
        any_q.size(1));
  check(dropout_p >= 0 && dropout_p <= 1, "attention: dropout p = {} must lie between 0 and 1",
        dropout_p);
  check_rows(any_q, any_k, rows);

  const DType dtype = any_q.dtype(), computed = compute_dtype(dtype);
  const Tensor q = convert(any_q.contiguous(), computed);
  const Tensor k = convert(any_k.contiguous(), computed);
  const Tensor v = convert(any_v.contiguous(), computed);
  DropoutMask dropout(dropout_p, generator.seed, generator.offset);
  if (dropout_p > 0)
    generator.take(uint64_t(
        attention_dropout_blocks(rows.key_begin.numel(), heads, rows.query_offsets.data<int32_t>(),
                                 rows.key_begin.data<int32_t>(), rows.key_end.data<int32_t>())));
  const Tensor y = Tensor::empty(q.shape(), computed);
  const Tensor log_sum_exp = Tensor::empty({q.size(0), heads}, computed);
  dispatch_float(computed, "attention", [&]<class T>() {
    using R = Compute<T>;
    attention_forward(attention_args<R>(q, k, v, rows, heads, dropout), y.data<R>(),
                      log_sum_exp.data<R>());
  });
  return record("attention", convert(y, dtype), {any_q, any_k, any_v},
                [q = Saved(q), k = Saved(k), v = Saved(v), y = Saved(y), log_sum_exp, rows, heads,
                 dropout, computed](const Tensor& any_dy) -> Tensors {
                  const DType dtype = any_dy.dtype();
                  const Tensor dy = convert(any_dy.contiguous(), computed);
                  const Tensor dq = Tensor::empty(q.get().shape(), computed);
                  const Tensor dk = Tensor::empty(k.get().shape(), computed);
                  const Tensor dv = Tensor::empty(k.get().shape(), computed);
                  dispatch_float(computed, "attention", [&]<class T>() {
                    using R = Compute<T>;
                    attention_backward(
                        attention_args<R>(q.get(), k.get(), v.get(), rows, heads, dropout),
                        k.get().size(0), y.get().data<R>(), log_sum_exp.data<R>(), dy.data<R>(),
                        dq.data<R>(), dk.data<R>(), dv.data<R>());
                  });
                  return {convert(dq, dtype), convert(dk, dtype), convert(dv, dtype)};
                });
}

}  // namespace minim
