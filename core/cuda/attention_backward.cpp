#include "core/cuda/attention_tile.h"
#include "core/math.h"

namespace minim::cuda {

namespace {

using namespace attention;

// What both kernels of the backward get beside the arguments of the forward.
template <class T>
struct Gradients {
  const T *y, *dy;
  const Compute<T>* log_sum_exp;
  T *dq, *dk, *dv;
  Compute<T>* delta;  // [query rows, heads]: the sum over keys of p dp, which equals dy · y
};

// dq of one tile of queries, and delta of its rows.
template <class T, int D, int own, int other, class C = Compute<T>>
__device__ void query_gradients(const AttentionArgs<T>& args, const Gradients<T>& g,
                                const Slice& slice, int64_t first, int64_t dropout_block) {
  constexpr int rows = own * side, columns = other * side, d_pitch = pitch_of<C>(columns);
  const int head_dim = int(args.head_dim), width = width_of<C>(head_dim);
  const int pitch = pitch_of<C>(width), x = thread_x(), y0 = thread_y();
  const int64_t stride = args.dim(), column = slice.head * head_dim;
  DYNAMIC_SHARED(C, q);  // [rows, pitch]
  C* dy = q + rows * pitch;
  C* k = dy + rows * pitch;
  C* v = k + columns * pitch;
  C* ds = v + columns * pitch;
  auto* kept = reinterpret_cast<uint8_t*>(ds + rows * d_pitch);

  const int64_t top = slice.query_begin + first;
  const int here = int(min(int64_t(rows), slice.queries - first));
  load_tile(q, rows, args.q + top * stride + column, stride, here, head_dim);
  load_tile(dy, rows, g.dy + top * stride + column, stride, here, head_dim);
  // Without a barrier: each thread reads the numbers of dy that it has loaded itself.
  C lse[own], delta[own];
  unrolled<own>([&](int i) {
    const int r = y0 + i * side;
    const bool mine = r < here;
    const int64_t row = (top + r) * args.heads + slice.head;
    C dot = 0;
    for (int c = x; mine && c < head_dim; c += side)
      dot += dy[r * pitch + c] * C(g.y[(top + r) * stride + column + c]);
    delta[i] = sum_over_row(dot);
    lse[i] = mine ? g.log_sum_exp[row] : C(0);
    if (mine && x == 0) g.delta[row] = delta[i];
  });

  const bool drops = args.dropout.threshold > 0;
  const C scale = drops ? C(args.dropout.scale()) : C(1);
  Part<C, D, own> dq;
  for (int64_t key = 0; key < slice.keys; key += columns) {
    const int keys = int(min(int64_t(columns), slice.keys - key));
    const int64_t at = (slice.key_begin + key) * stride + column;
    load_tile(k, columns, args.k + at, stride, keys, head_dim);
    load_tile(v, columns, args.v + at, stride, keys, head_dim);
    if (drops)
      draw_kept(kept, args.dropout, dropout_block + first * slice.blocks_per_row() + key / 8,
                slice.blocks_per_row(), rows, columns / 8);
    __syncthreads();

    C s[own][other] = {}, dp[own][other] = {};
    add_row_products(s, q, k, width);
    add_row_products(dp, dy, v, width);
    unrolled<own * other>([&](int n) {
      const int i = n / other, j = n % other;
      const int r = y0 + i * side, c = x + j * side;
      const C p = c < keys ? math::exp(s[i][j] * args.scale - lse[i]) : C(0);
      const bool drop = drops && !is_kept(kept, columns / 8, r, c);
      ds[r * d_pitch + c] = p * ((drop ? C(0) : dp[i][j] * scale) - delta[i]);
    });
    __syncthreads();
    dq.add_product(ds, d_pitch, k, keys, width);
    __syncthreads();
  }

  C factor[own];
  for (int i = 0; i < own; ++i)
    factor[i] = args.scale;
  dq.store(g.dq + top * stride + column, stride, here, head_dim, factor);
}

// dk and dv of one tile of keys. Its rows are keys and its columns queries, so that each thread
// sums over the queries in their order.
template <class T, int D, int own, int other, class C = Compute<T>>
__device__ void key_gradients(const AttentionArgs<T>& args, const Gradients<T>& g,
                              const Slice& slice, int64_t first, int64_t dropout_block) {
  constexpr int rows = own * side, columns = other * side, p_pitch = pitch_of<C>(columns);
  const int head_dim = int(args.head_dim), width = width_of<C>(head_dim);
  const int pitch = pitch_of<C>(width), x = thread_x(), y0 = thread_y();
  const int64_t stride = args.dim(), column = slice.head * head_dim;
  DYNAMIC_SHARED(C, k);  // [rows, pitch]
  C* v = k + rows * pitch;
  C* q = v + rows * pitch;
  C* dy = q + columns * pitch;
  C* p = dy + columns * pitch;  // the probabilities, then the gradients of the scores
  auto* kept = reinterpret_cast<uint8_t*>(p + rows * p_pitch);

  const int64_t key_at = (slice.key_begin + first) * stride + column;
  const int here = int(min(int64_t(rows), slice.keys - first));
  load_tile(k, rows, args.k + key_at, stride, here, head_dim);
  load_tile(v, rows, args.v + key_at, stride, here, head_dim);

  const bool drops = args.dropout.threshold > 0;
  const C scale = drops ? C(args.dropout.scale()) : C(1);
  Part<C, D, own> dk, dv;
  for (int64_t query = 0; query < slice.queries; query += columns) {
    const int queries = int(min(int64_t(columns), slice.queries - query));
    const int64_t top = slice.query_begin + query;
    load_tile(q, columns, args.q + top * stride + column, stride, queries, head_dim);
    load_tile(dy, columns, g.dy + top * stride + column, stride, queries, head_dim);
    if (drops)
      draw_kept(kept, args.dropout, dropout_block + query * slice.blocks_per_row() + first / 8,
                slice.blocks_per_row(), columns, rows / 8);
    __syncthreads();

    C s[own][other] = {}, dp[own][other] = {};
    add_row_products(s, k, q, width);
    add_row_products(dp, v, dy, width);
    unrolled<other>([&](int j) {
      const int c = x + j * side;
      const bool valid = c < queries;
      const int64_t row = (top + c) * args.heads + slice.head;
      const C lse = valid ? g.log_sum_exp[row] : C(0), delta = valid ? g.delta[row] : C(0);
      unrolled<own>([&](int i) {
        const int r = y0 + i * side;
        const C probability = valid ? math::exp(s[i][j] * args.scale - lse) : C(0);
        const C mask = drops && !is_kept(kept, rows / 8, c, r) ? C(0) : scale;
        p[r * p_pitch + c] = probability * mask;
        dp[i][j] = probability * (dp[i][j] * mask - delta);
      });
    });
    __syncthreads();
    dv.add_product(p, p_pitch, dy, queries, width);
    __syncthreads();
    for (int i = 0; i < own; ++i)
      for (int j = 0; j < other; ++j)
        p[(y0 + i * side) * p_pitch + x + j * side] = dp[i][j];
    __syncthreads();
    dk.add_product(p, p_pitch, q, queries, width);
    __syncthreads();
  }

  C factor[own], one[own];
  for (int i = 0; i < own; ++i) {
    factor[i] = args.scale;
    one[i] = 1;
  }
  dk.store(g.dk + key_at, stride, here, head_dim, factor);
  dv.store(g.dv + key_at, stride, here, head_dim, one);
}

template <class T, int D>
__global__ void __launch_bounds__(threads)
    attention_query_gradients_kernel(AttentionArgs<T> args, Gradients<T> g, int64_t tiles) {
  const Slice slice = slice_of_block(args, tiles);
  const int64_t dropout_block = first_dropout_block(args, slice, int64_t(blockIdx.x) / tiles);
  with_tile_size<Compute<T>, D>(slice.queries, slice.keys, [&]<int own, int other>() {
    constexpr int rows = own * side;
    for (int64_t first = int64_t(blockIdx.x) % tiles * rows; first < slice.queries;
         first += tiles * rows)
      query_gradients<T, D, own, other>(args, g, slice, first, dropout_block);
  });
}

template <class T, int D>
__global__ void __launch_bounds__(threads)
    attention_key_gradients_kernel(AttentionArgs<T> args, Gradients<T> g, int64_t tiles) {
  const Slice slice = slice_of_block(args, tiles);
  const int64_t dropout_block = first_dropout_block(args, slice, int64_t(blockIdx.x) / tiles);
  with_tile_size<Compute<T>, D>(slice.keys, slice.queries, [&]<int own, int other>() {
    constexpr int rows = own * side;
    for (int64_t first = int64_t(blockIdx.x) % tiles * rows; first < slice.keys;
         first += tiles * rows)
      key_gradients<T, D, own, other>(args, g, slice, first, dropout_block);
  });
}

}  // namespace

template <class T>
void attention_backward(const AttentionArgs<T>& args, int64_t key_rows, const T* y,
                        const Compute<T>* log_sum_exp, const T* dy, T* dq, T* dk, T* dv,
                        Compute<T>* delta, cudaStream_t stream) {
  using C = Compute<T>;
  check_args("attention backward", args);
  // Rows that are nobody's key get no gradient.
  const size_t key_bytes = size_t(key_rows * args.dim()) * sizeof(T);
  if (key_bytes > 0) {
    check_cuda(cudaMemsetAsync(dk, 0, key_bytes, stream), "attention backward");
    check_cuda(cudaMemsetAsync(dv, 0, key_bytes, stream), "attention backward");
  }
  if (args.sequences == 0) return;
  const Gradients<T> g{y, dy, log_sum_exp, dq, dk, dv, delta};
  with_head_size(args.head_dim, [&]<int D>() {
    const size_t shared = shared_bytes<C, D>(args.head_dim, 4);
    const auto run = [&](auto kernel, int64_t tiles) {
      launch(kernel,
             {.blocks = {args.sequences * tiles, args.heads},
              .threads = {threads},
              .shared = shared,
              .stream = stream},
             args, g, tiles);
    };
    run(attention_query_gradients_kernel<T, D>, tiles_for<C, D>(args.max_queries));
    run(attention_key_gradients_kernel<T, D>, tiles_for<C, D>(args.max_keys));
  });
}

template void attention_backward(const AttentionArgs<float>&, int64_t, const float*, const float*,
                                 const float*, float*, float*, float*, float*, cudaStream_t);
template void attention_backward(const AttentionArgs<double>&, int64_t, const double*,
                                 const double*, const double*, double*, double*, double*, double*,
                                 cudaStream_t);
template void attention_backward(const AttentionArgs<f16>&, int64_t, const f16*, const float*,
                                 const f16*, f16*, f16*, f16*, float*, cudaStream_t);
template void attention_backward(const AttentionArgs<bf16>&, int64_t, const bf16*, const float*,
                                 const bf16*, bf16*, bf16*, bf16*, float*, cudaStream_t);

}  // namespace minim::cuda
