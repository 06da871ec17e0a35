#include "core/attention.h"

#include <algorithm>
#include <vector>

#include "core/gemm.h"
#include "core/launch.h"
#include "core/math.h"

namespace minim {

namespace {

// Query rows whose scores are held at a time.
constexpr int64_t tile_rows = 64;

// Where one (sequence, head) lies.
template <class T>
struct HeadSlice {
  int64_t query_begin, queries, key_begin, keys, column;
  int64_t dropout_row;  // Philox block of the first probability of the first query

  // Each row of probabilities starts at a block of its own.
  int64_t blocks_per_row() const { return int64_t(DropoutMask::blocks(keys)); }
};

// Slices in an order that does not depend on the number of threads.
template <class T>
std::vector<HeadSlice<T>> head_slices(const AttentionArgs<T>& args) {
  std::vector<HeadSlice<T>> slices;
  slices.reserve(size_t(args.sequences * args.heads));
  int64_t blocks = 0;
  for (int64_t s = 0; s < args.sequences; ++s)
    for (int64_t h = 0; h < args.heads; ++h) {
      const HeadSlice<T> slice{
          args.query_offsets[s], args.query_offsets[s + 1] - args.query_offsets[s],
          args.key_begin[s],     args.key_end[s] - args.key_begin[s],
          h * args.head_dim,     blocks};
      blocks += slice.queries * slice.blocks_per_row();
      slices.push_back(slice);
    }
  return slices;
}

template <class T>
int64_t most_keys(const AttentionArgs<T>& args) {
  int64_t most = 0;
  for (int64_t s = 0; s < args.sequences; ++s)
    most = std::max<int64_t>(most, args.key_end[s] - args.key_begin[s]);
  return most;
}

// Multiplies a row of probabilities (or of their gradients) by its dropout mask.
template <class T>
void apply_dropout(const DropoutMask& dropout, uint64_t first_block, int64_t n, T* row) {
  const T scale = T(dropout.scale());
  for (int64_t begin = 0; begin < n; begin += 8, ++first_block) {
    const PhiloxBlock block = dropout.block(first_block);
    const int64_t end = std::min<int64_t>(begin + 8, n);
    for (int64_t j = begin; j < end; ++j)
      row[j] *= DropoutMask::bits(block, j - begin) >= dropout.threshold ? scale : T(0);
  }
}

}  // namespace

int64_t attention_dropout_blocks(int64_t sequences, int64_t heads, const int32_t* query_offsets,
                                 const int32_t* key_begin, const int32_t* key_end) {
  int64_t blocks = 0;
  for (int64_t s = 0; s < sequences; ++s)
    blocks += heads * (query_offsets[s + 1] - query_offsets[s]) *
              int64_t(DropoutMask::blocks(key_end[s] - key_begin[s]));
  return blocks;
}

template <class T>
void attention_forward(const AttentionArgs<T>& args, T* y, T* log_sum_exp) {
  const auto slices = head_slices(args);
  const int64_t stride = args.dim(), width = most_keys(args);
  const memory::Scope scope(memory::Category::workspace);
  const Tensor workspace = Tensor::empty({thread_count(), tile_rows * width}, dtype_of<T>);

  parallel_tasks(int64_t(slices.size()), [&](int64_t task) {
    const HeadSlice<T>& slice = slices[size_t(task)];
    T* p = workspace.data<T>() + thread_index() * tile_rows * width;
    const Matrix<T> k_t{args.k + slice.key_begin * stride + slice.column, stride, true};
    const Matrix<T> v{args.v + slice.key_begin * stride + slice.column, stride};
    for (int64_t first = 0; first < slice.queries; first += tile_rows) {
      const int64_t rows = std::min(tile_rows, slice.queries - first);
      const int64_t top = slice.query_begin + first;
      gemm_serial<T>(rows, slice.keys, args.head_dim, args.scale,
                     {args.q + top * stride + slice.column, stride}, k_t, T(0), p, slice.keys);
      for (int64_t i = 0; i < rows; ++i) {
        T* row = p + i * slice.keys;
        const SerialGroup g;
        const T largest = g.max(slice.keys, [&](int64_t j) { return row[j]; });
        g.each(slice.keys, [&](int64_t j) { row[j] = math::exp(row[j] - largest); });
        const T total = g.sum(slice.keys, [&](int64_t j) { return row[j]; });
        g.each(slice.keys, [&](int64_t j) { row[j] /= total; });
        log_sum_exp[(top + i) * args.heads + slice.column / args.head_dim] =
            largest + math::log(total);
        if (args.dropout.threshold > 0)
          apply_dropout(args.dropout,
                        uint64_t(slice.dropout_row + (first + i) * slice.blocks_per_row()),
                        slice.keys, row);
      }
      gemm_serial<T>(rows, args.head_dim, slice.keys, T(1), {p, slice.keys}, v, T(0),
                     y + top * stride + slice.column, stride);
    }
  });
}

template <class T>
void attention_backward(const AttentionArgs<T>& args, int64_t key_rows, const T* y,
                        const T* log_sum_exp, const T* dy, T* dq, T* dk, T* dv) {
  const auto slices = head_slices(args);
  const int64_t stride = args.dim(), width = most_keys(args);
  // Rows that are nobody's key get no gradient.
  std::fill_n(dk, key_rows * stride, T(0));
  std::fill_n(dv, key_rows * stride, T(0));
  const memory::Scope scope(memory::Category::workspace);
  const Tensor workspace = Tensor::empty({thread_count(), 2 * tile_rows * width}, dtype_of<T>);

  parallel_tasks(int64_t(slices.size()), [&](int64_t task) {
    const HeadSlice<T>& slice = slices[size_t(task)];
    T* p = workspace.data<T>() + thread_index() * 2 * tile_rows * width;
    T* dp = p + tile_rows * width;
    const int64_t key_at = slice.key_begin * stride + slice.column;
    for (int64_t first = 0; first < slice.queries; first += tile_rows) {
      const int64_t rows = std::min(tile_rows, slice.queries - first);
      const int64_t top = slice.query_begin + first;
      const int64_t query_at = top * stride + slice.column;
      gemm_serial<T>(rows, slice.keys, args.head_dim, args.scale, {args.q + query_at, stride},
                     {args.k + key_at, stride, true}, T(0), p, slice.keys);
      gemm_serial<T>(rows, slice.keys, args.head_dim, T(1), {dy + query_at, stride},
                     {args.v + key_at, stride, true}, T(0), dp, slice.keys);
      const SerialGroup g;
      const auto dropout_block = [&](int64_t i) {
        return uint64_t(slice.dropout_row + (first + i) * slice.blocks_per_row());
      };
      for (int64_t i = 0; i < rows; ++i) {
        T* row = p + i * slice.keys;
        const T lse = log_sum_exp[(top + i) * args.heads + slice.column / args.head_dim];
        g.each(slice.keys, [&](int64_t j) { row[j] = math::exp(row[j] - lse); });
        if (args.dropout.threshold > 0)
          apply_dropout(args.dropout, dropout_block(i), slice.keys, dp + i * slice.keys);
        // Softmax backward: the sum over j of p dp equals dy · y.
        const T* dy_row = dy + query_at + i * stride;
        const T* y_row = y + query_at + i * stride;
        const T dot = g.sum(args.head_dim, [&](int64_t c) { return dy_row[c] * y_row[c]; });
        T* d_row = dp + i * slice.keys;
        g.each(slice.keys, [&](int64_t j) { d_row[j] = row[j] * (d_row[j] - dot); });
        if (args.dropout.threshold > 0)
          apply_dropout(args.dropout, dropout_block(i), slice.keys, row);
      }
      gemm_serial<T>(slice.keys, args.head_dim, rows, T(1), {p, slice.keys, true},
                     {dy + query_at, stride}, T(1), dv + key_at, stride);
      gemm_serial<T>(rows, args.head_dim, slice.keys, args.scale, {dp, slice.keys},
                     {args.k + key_at, stride}, T(0), dq + query_at, stride);
      gemm_serial<T>(slice.keys, args.head_dim, rows, args.scale, {dp, slice.keys, true},
                     {args.q + query_at, stride}, T(1), dk + key_at, stride);
    }
  });
}

template void attention_forward(const AttentionArgs<float>&, float*, float*);
template void attention_forward(const AttentionArgs<double>&, double*, double*);
template void attention_backward(const AttentionArgs<float>&, int64_t, const float*, const float*,
                                 const float*, float*, float*, float*);
template void attention_backward(const AttentionArgs<double>&, int64_t, const double*,
                                 const double*, const double*, double*, double*, double*);

}  // namespace minim
