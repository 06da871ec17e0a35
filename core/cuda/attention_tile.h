#pragma once

#include "core/cuda/attention.h"
#include "core/cuda/launch.h"
#include "core/error.h"
#include "core/portable.h"

// What the attention kernels are made of. A block has 16 x 16 threads and works on a tile of "own"
// rows (queries in the forward and for dq, keys for dk and dv), against tiles of "other" rows that
// it goes through. Thread (x, y) holds the products of own rows y, y + 16, .. with other rows x,
// x + 16, .. in registers. Tiles lie in shared memory, converted to the type of the arithmetic.
namespace minim::cuda::attention {

inline constexpr int side = 16;
inline constexpr int threads = side * side;

// Rows of each kind that a thread of the largest tile holds, for heads of up to D numbers: as many
// as fit shared memory.
template <class C, int D>
inline constexpr int rows_per_thread = (D == 64 ? 4 : 2) / (int(sizeof(C)) / 4);

__device__ inline int thread_x() {
  return int(threadIdx.x) % side;
}
__device__ inline int thread_y() {
  return int(threadIdx.x) / side;
}

// f(0), .., f(n - 1) written out, so that arrays which f indexes stay in registers.
template <int n, class F>
__device__ void unrolled(const F& f) {
  if constexpr (n > 0) {
    unrolled<n - 1>(f);
    f(n - 1);
  }
}

// Numbers that one instruction loads.
template <class C>
struct alignas(16) Pack {
  static constexpr int size = 16 / int(sizeof(C));
  C v[size];
};

template <class C>
__device__ Pack<C> load_pack(const C* p) {
  return *reinterpret_cast<const Pack<C>*>(p);
}

// Numbers of a row of a tile, and the distance of rows: an odd number of packs, so that 16 threads
// that load one column of packs meet in no bank of shared memory.
template <class C>
HD constexpr int width_of(int64_t numbers) {
  constexpr int step = 2 * Pack<C>::size;
  return int((numbers + step - 1) / step) * step;
}
template <class C>
HD constexpr int pitch_of(int width) {
  return width + Pack<C>::size;
}

// One head of one sequence.
struct Slice {
  int64_t query_begin, queries, key_begin, keys;
  int64_t head;

  // Philox blocks of one row of probabilities.
  HD int64_t blocks_per_row() const { return (keys + 7) / 8; }
};

// This block's sequence and head: the grid is [sequences * tiles, heads].
template <class T>
__device__ Slice slice_of_block(const AttentionArgs<T>& args, int64_t tiles) {
  const int64_t s = int64_t(blockIdx.x) / tiles;
  const int64_t q = args.query_offsets[s], k = args.key_begin[s];
  return {q, args.query_offsets[s + 1] - q, k, args.key_end[s] - k, int64_t(blockIdx.y)};
}

// The Philox block of a slice's first probability: after those of the sequences before it and of
// the heads before it in its sequence; 0 where nothing is dropped. Called by all threads.
template <class T>
__device__ int64_t first_dropout_block(const AttentionArgs<T>& args, const Slice& slice,
                                       int64_t sequence) {
  if (args.dropout.threshold == 0) return 0;
  DYNAMIC_SHARED(int64_t, partials);  // [warps], before tiles are loaded there
  int64_t blocks = 0;
  for (int64_t s = threadIdx.x; s < sequence; s += threads)
    blocks += int64_t(args.query_offsets[s + 1] - args.query_offsets[s]) *
              int64_t((args.key_end[s] - args.key_begin[s] + 7) / 8);
  for (int step = 16; step > 0; step /= 2)
    blocks += __shfl_xor_sync(0xffffffffu, blocks, step);
  if (threadIdx.x % 32 == 0) partials[threadIdx.x / 32] = blocks;
  __syncthreads();
  blocks = 0;
  for (int warp = 0; warp < threads / 32; ++warp)
    blocks += partials[warp];
  __syncthreads();
  return args.heads * blocks + slice.head * slice.queries * slice.blocks_per_row();
}

// Which probabilities of a tile dropout keeps: a bit each, a byte for every 8 keys of a query.
// `block` is the Philox block of the tile's first query and key.
__device__ inline void draw_kept(uint8_t* kept, const DropoutMask& dropout, int64_t block,
                                 int64_t blocks_per_row, int queries, int bytes_per_query) {
  for (int i = int(threadIdx.x); i < queries * bytes_per_query; i += threads) {
    const int query = i / bytes_per_query, byte = i % bytes_per_query;
    const PhiloxBlock bits = dropout.block(uint64_t(block + query * blocks_per_row + byte));
    unsigned mask = 0;
    for (int j = 0; j < 8; ++j)
      mask |= unsigned(DropoutMask::bits(bits, j) >= dropout.threshold) << j;
    kept[i] = uint8_t(mask);
  }
}

__device__ inline bool is_kept(const uint8_t* kept, int bytes_per_query, int query, int key) {
  return (kept[query * bytes_per_query + key / 8] >> (key % 8) & 1) != 0;
}

// Copies `rows` rows of one head, `stride` apart, to a tile; zeros fill the rest of the tile.
template <class C, class T>
__device__ void load_tile(C* tile, int tile_rows, const T* head, int64_t stride, int rows,
                          int head_dim) {
  const int width = width_of<C>(head_dim), pitch = pitch_of<C>(width);
  for (int r = thread_y(); r < tile_rows; r += side)
    for (int c = thread_x(); c < width; c += side)
      tile[r * pitch + c] = r < rows && c < head_dim ? C(head[r * stride + c]) : C(0);
}

// sums[i][j] += own row (y + 16 i) · other row (x + 16 j).
template <class C, int own, int other>
__device__ void add_row_products(C (&sums)[own][other], const C* own_tile, const C* other_tile,
                                 int width) {
  const int pitch = pitch_of<C>(width);
  const C* a = own_tile + thread_y() * pitch;
  const C* b = other_tile + thread_x() * pitch;
  for (int c = 0; c < width; c += Pack<C>::size) {
    Pack<C> x[own], y[other];
    for (int i = 0; i < own; ++i)
      x[i] = load_pack(a + i * side * pitch + c);
    for (int j = 0; j < other; ++j)
      y[j] = load_pack(b + j * side * pitch + c);
    for (int i = 0; i < own; ++i)
      for (int j = 0; j < other; ++j)
        for (int e = 0; e < Pack<C>::size; ++e)
          sums[i][j] += x[i].v[e] * y[j].v[e];
  }
}

// A thread's part of [own rows, head_dim]: rows y + 16 i, and of every 16 packs the x-th.
template <class C, int D, int own>
struct Part {
  static constexpr int packs = D / (side * Pack<C>::size);
  C v[own][packs][Pack<C>::size] = {};

  HD static int column(int pack, int x) { return (pack * side + x) * Pack<C>::size; }

  // v += p · tile, with p: [own rows, other rows], tile: [other rows, width]. `count` other rows
  // are enough, the rest of p is zero.
  __device__ void add_product(const C* p, int p_pitch, const C* tile, int count, int width) {
    const int pitch = pitch_of<C>(width), x = thread_x();
    const C* row = p + thread_y() * p_pitch;
    for (int c = 0; c < count; c += Pack<C>::size) {
      Pack<C> weight[own];
      for (int i = 0; i < own; ++i)
        weight[i] = load_pack(row + i * side * p_pitch + c);
      for (int e = 0; e < Pack<C>::size; ++e)
        for (int n = 0; n < packs; ++n) {
          if (column(n, x) >= width) continue;
          const Pack<C> values = load_pack(tile + (c + e) * pitch + column(n, x));
          for (int i = 0; i < own; ++i)
            for (int f = 0; f < Pack<C>::size; ++f)
              v[i][n][f] += weight[i].v[e] * values.v[f];
        }
    }
  }

  __device__ void scale_row(int i, C factor) {
    for (int n = 0; n < packs; ++n)
      for (int f = 0; f < Pack<C>::size; ++f)
        v[i][n][f] *= factor;
  }

  // Writes `rows` rows of one head, times the factor of each of this thread's rows.
  template <class T>
  __device__ void store(T* head, int64_t stride, int rows, int head_dim,
                        const C (&factor)[own]) const {
    unrolled<own>([&](int i) {
      const int r = thread_y() + i * side;
      if (r >= rows) return;
      unrolled<packs * Pack<C>::size>([&](int n) {
        const int pack = n / Pack<C>::size, f = n % Pack<C>::size;
        const int c = column(pack, thread_x()) + f;
        if (c < head_dim) head[r * stride + c] = T(v[i][pack][f] * factor[i]);
      });
    });
  }
};

// Over the 16 threads that share a row. Called by all lanes.
template <class C>
__device__ C sum_over_row(C v) {
  for (int step = side / 2; step > 0; step /= 2)
    v += __shfl_xor_sync(0xffffffffu, v, step);
  return v;
}
// NaN if any is NaN.
template <class C>
__device__ C max_over_row(C v) {
  for (int step = side / 2; step > 0; step /= 2) {
    const C w = __shfl_xor_sync(0xffffffffu, v, step);
    v = v > w || v != v ? v : w;
  }
  return v;
}

// Bytes of shared memory for the largest tile: `tiles` of rows, one of products, one of kept bits.
template <class C, int D>
size_t shared_bytes(int64_t head_dim, int tiles) {
  const size_t rows = side * rows_per_thread<C, D>;
  const size_t pitch = size_t(pitch_of<C>(width_of<C>(head_dim)));
  return (size_t(tiles) * rows * pitch + rows * size_t(pitch_of<C>(int(rows)))) * sizeof(C) +
         rows * rows / 8;
}

// Tiles that cover the own rows of the longest sequence.
template <class C, int D>
int64_t tiles_for(int64_t longest) {
  constexpr int64_t rows = side * rows_per_thread<C, D>;
  return longest > rows ? (longest + rows - 1) / rows : 1;
}

// Calls body.operator()<own, other>() with the rows per thread that suit a slice: short sequences
// and lone queries do not pay for a large tile.
template <class C, int D, class Body>
__device__ void with_tile_size(int64_t own_rows, int64_t other_rows, const Body& body) {
  constexpr int most = rows_per_thread<C, D>;
  if constexpr (most == 1) {
    body.template operator()<1, 1>();
  } else if (own_rows <= side) {
    if (other_rows <= side)
      body.template operator()<1, 1>();
    else
      body.template operator()<1, most>();
  } else if (other_rows <= side) {
    body.template operator()<most, 1>();
  } else {
    body.template operator()<most, most>();
  }
}

template <class T>
void check_args(const char* op, const AttentionArgs<T>& args) {
  check(args.head_dim >= 1 && args.head_dim <= max_head_dim,
        "{}: head_dim is {}, it must be 1 to {} on a CUDA device", op, args.head_dim, max_head_dim);
  check(args.heads >= 1 && args.heads <= 65535, "{}: {} heads, there must be 1 to 65535", op,
        args.heads);
}

// Calls body.operator()<D>() with the D that holds a head.
template <class Body>
void with_head_size(int64_t head_dim, const Body& body) {
  if (head_dim <= 64)
    body.template operator()<64>();
  else
    body.template operator()<256>();
}

}  // namespace minim::cuda::attention
