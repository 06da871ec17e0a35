#include "core/attention.h"

#include <algorithm>
#include <cmath>

#include "autograd/autocast.h"
#include "autograd/ops.h"
#include "autograd/ops/checks.h"
#include "core/product.h"
#include "core/recording.h"

#if defined(MINIM_WITH_CUDA)
#include "core/cuda/attention.h"
#include "core/cuda/cudnn_attention.h"
#include "core/cuda/device.h"
#endif

namespace minim {

namespace {

// The inputs, contiguous and of one dtype, with the rows where they are worked on.
struct Problem {
  Saved q, k, v;
  AttentionRows rows;
  int64_t heads, max_queries, max_keys;
  DropoutMask dropout;
};

// Fills what both devices' arguments have in common.
template <class Args, class T>
Args arguments(const Problem& p) {
  const Tensor &q = p.q.get(), &k = p.k.get(), &v = p.v.get();
  const int64_t head_dim = q.size(1) / p.heads;
  return {.q = q.data<T>(),
          .k = k.data<T>(),
          .v = v.data<T>(),
          .sequences = p.rows.key_begin.numel(),
          .heads = p.heads,
          .head_dim = head_dim,
          .query_offsets = p.rows.query_offsets.data<int32_t>(),
          .key_begin = p.rows.key_begin.data<int32_t>(),
          .key_end = p.rows.key_end.data<int32_t>(),
          .scale = Compute<T>(1 / std::sqrt(double(head_dim))),
          .dropout = p.dropout};
}

#if defined(MINIM_WITH_CUDA)
template <class T>
cuda::AttentionArgs<T> cuda_arguments(const Problem& p) {
  auto args = arguments<cuda::AttentionArgs<T>, T>(p);
  args.max_queries = p.max_queries;
  args.max_keys = p.max_keys;
  return args;
}

// Calls work(scratch), where scratch gives device memory until work has returned: the pool gives it
// to no work that could run before what was given to the stream.
template <class Work>
bool with_scratch(Device device, const Work& work) {
  const memory::Scope scope(memory::Category::workspace);
  Tensor memory;
  return work([&](size_t bytes) -> void* {
    memory = Tensor::empty({int64_t(bytes) + 255}, DType::u8, device);
    return reinterpret_cast<void*>((uintptr_t(memory.data<uint8_t>()) + 255) / 256 * 256);
  });
}
#endif

void forward(const Problem& p, const Tensor& y, const Tensor& log_sum_exp) {
  dispatch_float(y.dtype(), "attention", [&]<class T>() {
    using R = Compute<T>;
#if defined(MINIM_WITH_CUDA)
    if (y.device().is_cuda()) {
      const auto args = cuda_arguments<T>(p);
      const auto stream = cuda::stream(y.device());
      if (!with_scratch(y.device(), [&](const cuda::Scratch& scratch) {
            return cuda::cudnn_attention_forward(args, y.data<T>(), log_sum_exp.data<R>(), scratch,
                                                 stream);
          }))
        cuda::attention_forward(args, y.data<T>(), log_sum_exp.data<R>(), stream);
      return;
    }
#endif
    attention_forward(arguments<AttentionArgs<R>, R>(p), y.data<R>(), log_sum_exp.data<R>());
  });
}

// Writes dq, dk and dv.
void backward(const Problem& p, const Tensor& y, const Tensor& log_sum_exp, const Tensor& dy,
              const Tensor& dq, const Tensor& dk, const Tensor& dv) {
  const int64_t key_rows = p.k.get().size(0);
  dispatch_float(y.dtype(), "attention", [&]<class T>() {
    using R = Compute<T>;
#if defined(MINIM_WITH_CUDA)
    if (y.device().is_cuda()) {
      const auto args = cuda_arguments<T>(p);
      const auto stream = cuda::stream(y.device());
      if (with_scratch(y.device(), [&](const cuda::Scratch& scratch) {
            return cuda::cudnn_attention_backward(args, key_rows, y.data<T>(),
                                                  log_sum_exp.data<R>(), dy.data<T>(), dq.data<T>(),
                                                  dk.data<T>(), dv.data<T>(), scratch, stream);
          }))
        return;
      const Tensor delta = Tensor::empty_like(log_sum_exp);
      cuda::attention_backward(args, key_rows, y.data<T>(), log_sum_exp.data<R>(), dy.data<T>(),
                               dq.data<T>(), dk.data<T>(), dv.data<T>(), delta.data<R>(), stream);
      return;
    }
#endif
    attention_backward(arguments<AttentionArgs<R>, R>(p), key_rows, y.data<R>(),
                       log_sum_exp.data<R>(), dy.data<R>(), dq.data<R>(), dk.data<R>(),
                       dv.data<R>());
  });
}

// The longest of the pieces that begin and end at the given rows.
int64_t longest(std::span<const int32_t> begin, std::span<const int32_t> end) {
  int64_t most = 0;
  for (size_t s = 0; s < end.size(); ++s)
    most = std::max<int64_t>(most, end[s] - begin[s]);
  return most;
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

Tensor attention(const Tensor& given_q, const Tensor& given_k, const Tensor& given_v,
                 const AttentionRows& rows, int64_t heads, float dropout_p, Generator& generator) {
  const Tensor any_q = to_autocast(given_q), any_k = to_autocast(given_k);
  const Tensor any_v = to_autocast(given_v);
  check_floating("attention", any_q);
  check_alike("attention", any_q, any_k);
  check_alike("attention", any_q, any_v);
  check(any_q.rank() == 2 && any_k.rank() == 2 && any_k.shape() == any_v.shape() &&
            any_q.size(1) == any_k.size(1),
        "attention: q {}, k {} and v {} must be [rows, dim] with one dim", any_q.shape(),
        any_k.shape(), any_v.shape());
  check(heads > 0 && any_q.size(1) % heads == 0, "attention: {} heads do not divide dim {}", heads,
        any_q.size(1));
  check(dropout_p >= 0 && dropout_p <= 1, "attention: dropout p = {} must lie between 0 and 1",
        dropout_p);
  // The rows are checked on the host, and used where the queries are.
  const AttentionRows host = {on_host(rows.query_offsets), on_host(rows.key_begin),
                              on_host(rows.key_end)};
  check_rows(any_q, any_k, host);
  const auto offsets = host.query_offsets.values<int32_t>();
  const auto key_begin = host.key_begin.values<int32_t>(), key_end = host.key_end.values<int32_t>();

  const Device device = any_q.device();
  const DType dtype = any_q.dtype(), computed = product_dtype(dtype, device);
  DropoutMask dropout(0, 0, 0);
  if (dropout_p > 0)
    dropout = draw_mask(dropout_p, generator, [rows, heads](const RealRows& real) {
      const Tensor offsets = on_host(rows.query_offsets), begin = on_host(rows.key_begin),
                   end = on_host(rows.key_end);
      return uint64_t(attention_dropout_blocks(real.of(begin.numel()), heads,
                                               offsets.data<int32_t>(), begin.data<int32_t>(),
                                               end.data<int32_t>()));
    });
  // Work that is recorded is run again for sequences of other lengths.
  const int64_t bound = Recording::is_recording() ? Recording::current()->rows().longest : 0;
  const Problem problem = {
      .q = convert(any_q.contiguous(), computed),
      .k = convert(any_k.contiguous(), computed),
      .v = convert(any_v.contiguous(), computed),
      .rows = {rows.query_offsets.to(device), rows.key_begin.to(device), rows.key_end.to(device)},
      .heads = heads,
      .max_queries = std::max(longest(offsets, offsets.subspan(1)), bound),
      .max_keys = std::max(longest(key_begin, key_end), bound),
      .dropout = dropout};
  const Tensor y = Tensor::empty_like(problem.q.get());
  const Tensor log_sum_exp = y.new_empty({y.size(0), heads}, compute_dtype(computed));
  forward(problem, y, log_sum_exp);
  return record("attention", convert(y, dtype), {any_q, any_k, any_v},
                [problem, y = Saved(y), log_sum_exp](const Tensor& any_dy) -> Tensors {
                  const DType dtype = any_dy.dtype();
                  const Tensor dy = convert(any_dy.contiguous(), y.get().dtype());
                  const Tensor dq = Tensor::empty_like(problem.q.get());
                  const Tensor dk = Tensor::empty_like(problem.k.get());
                  const Tensor dv = Tensor::empty_like(problem.v.get());
                  backward(problem, y.get(), log_sum_exp, dy, dq, dk, dv);
                  return {convert(dq, dtype), convert(dk, dtype), convert(dv, dtype)};
                });
}

}  // namespace minim
