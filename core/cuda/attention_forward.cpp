#include <limits>

#include "core/cuda/attention_tile.h"
#include "core/math.h"

namespace minim::cuda {

namespace {

using namespace attention;

// Query rows of one tile against all keys of their sequence. The softmax is computed on the way:
// whenever a larger score comes up, what was summed so far is scaled down to it (Milakov and
// Gimelshein, "Online normalizer calculation for softmax", 2018).
template <class T, int D, int own, int other, class C = Compute<T>>
__device__ void attend(const AttentionArgs<T>& args, const Slice& slice, int64_t first,
                       int64_t dropout_block, T* y, C* log_sum_exp) {
  constexpr int rows = own * side, columns = other * side, p_pitch = pitch_of<C>(columns);
  const int head_dim = int(args.head_dim), width = width_of<C>(head_dim);
  const int pitch = pitch_of<C>(width), x = thread_x(), y0 = thread_y();
  const int64_t stride = args.dim(), column = slice.head * head_dim;
  DYNAMIC_SHARED(C, q);  // [rows, pitch]
  C* k = q + rows * pitch;
  C* v = k + columns * pitch;
  C* p = v + columns * pitch;
  auto* kept = reinterpret_cast<uint8_t*>(p + rows * p_pitch);

  const int64_t top = slice.query_begin + first;
  const int here = int(min(int64_t(rows), slice.queries - first));
  load_tile(q, rows, args.q + top * stride + column, stride, here, head_dim);
  Part<C, D, own> sum;
  C most[own], total[own];
  for (int i = 0; i < own; ++i) {
    most[i] = -std::numeric_limits<C>::infinity();
    total[i] = 0;
  }

  for (int64_t key = 0; key < slice.keys; key += columns) {
    const int keys = int(min(int64_t(columns), slice.keys - key));
    const int64_t at = (slice.key_begin + key) * stride + column;
    load_tile(k, columns, args.k + at, stride, keys, head_dim);
    load_tile(v, columns, args.v + at, stride, keys, head_dim);
    if (args.dropout.threshold > 0)
      draw_kept(kept, args.dropout, dropout_block + first * slice.blocks_per_row() + key / 8,
                slice.blocks_per_row(), rows, columns / 8);
    __syncthreads();

    C s[own][other] = {};
    add_row_products(s, q, k, width);
    unrolled<own>([&](int i) {
      C largest = most[i];
      for (int j = 0; j < other; ++j) {
        s[i][j] = x + j * side < keys ? s[i][j] * args.scale : -std::numeric_limits<C>::infinity();
        largest = largest > s[i][j] || largest != largest ? largest : s[i][j];
      }
      largest = max_over_row(largest);
      const C correction = math::exp(most[i] - largest);
      C added = 0;
      for (int j = 0; j < other; ++j) {
        s[i][j] = math::exp(s[i][j] - largest);
        added += s[i][j];
      }
      total[i] = total[i] * correction + sum_over_row(added);
      most[i] = largest;
      sum.scale_row(i, correction);
      for (int j = 0; j < other; ++j) {
        const int r = y0 + i * side, c = x + j * side;
        const bool drop = args.dropout.threshold > 0 && !is_kept(kept, columns / 8, r, c);
        p[r * p_pitch + c] = drop ? C(0) : s[i][j];
      }
    });
    __syncthreads();
    sum.add_product(p, p_pitch, v, keys, width);
    __syncthreads();
  }

  const C scale = args.dropout.threshold > 0 ? C(args.dropout.scale()) : C(1);
  C factor[own];
  for (int i = 0; i < own; ++i) {
    factor[i] = slice.keys > 0 ? scale / total[i] : C(0);
    const int r = y0 + i * side;
    if (x == 0 && r < here)
      log_sum_exp[(top + r) * args.heads + slice.head] = most[i] + math::log(total[i]);
  }
  sum.store(y + top * stride + column, stride, here, head_dim, factor);
}

template <class T, int D>
__global__ void __launch_bounds__(threads)
    attention_forward_kernel(AttentionArgs<T> args, int64_t tiles, T* y, Compute<T>* log_sum_exp) {
  using C = Compute<T>;
  const Slice slice = slice_of_block(args, tiles);
  const int64_t dropout_block = first_dropout_block(args, slice, int64_t(blockIdx.x) / tiles);
  with_tile_size<C, D>(slice.queries, slice.keys, [&]<int own, int other>() {
    constexpr int rows = own * side;
    for (int64_t first = int64_t(blockIdx.x) % tiles * rows; first < slice.queries;
         first += tiles * rows)
      attend<T, D, own, other>(args, slice, first, dropout_block, y, log_sum_exp);
  });
}

}  // namespace

template <class T>
void attention_forward(const AttentionArgs<T>& args, T* y, Compute<T>* log_sum_exp,
                       cudaStream_t stream) {
  using C = Compute<T>;
  check_args("attention", args);
  if (args.sequences == 0) return;
  with_head_size(args.head_dim, [&]<int D>() {
    const int64_t tiles = tiles_for<C, D>(args.max_queries);
    launch(attention_forward_kernel<T, D>,
           {.blocks = {args.sequences * tiles, args.heads},
            .threads = {threads},
            .shared = shared_bytes<C, D>(args.head_dim, 3),
            .stream = stream},
           args, tiles, y, log_sum_exp);
  });
}

template void attention_forward(const AttentionArgs<float>&, float*, float*, cudaStream_t);
template void attention_forward(const AttentionArgs<double>&, double*, double*, cudaStream_t);
template void attention_forward(const AttentionArgs<f16>&, f16*, float*, cudaStream_t);
template void attention_forward(const AttentionArgs<bf16>&, bf16*, float*, cudaStream_t);

}  // namespace minim::cuda
