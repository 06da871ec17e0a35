#include "autograd/ops/add_rows.h"

#include <algorithm>
#include <limits>

#include "core/launch.h"

namespace minim {

// Adds to a block of columns, row by row.
template <class T, class Id>
struct AddRows {
  static constexpr int64_t block = 64;
  Compute<T>* to;
  const T* from;
  const Id* index;
  int64_t n, dim, skip;

  template <class Group>
  HD void operator()(const Group& g, int64_t part) const {
    const int64_t first = part * block;
    const int64_t width = first + block < dim ? block : dim - first;
    for (int64_t i = 0; i < n; ++i) {
      if (int64_t(index[i]) == skip) continue;
      Compute<T>* sums = to + int64_t(index[i]) * dim + first;
      const T* line = from + i * dim + first;
      g.each(width, [&](int64_t k) { sums[k] += Compute<T>(line[k]); });
    }
  }
};

// A device sorts the indices first: chunks of them by counting, then all chunks into one. What is
// equal keeps its order, and what is skipped comes last. Then there is a run of places for each
// index; pieces of runs are summed side by side. A run is cut at the same places whatever others
// there are, so that zeros that fill up a batch change no bit.

inline constexpr int32_t skipped = std::numeric_limits<int32_t>::max();

// The i-th index of a chunk goes behind those that are smaller, or equal and earlier.
template <class Id>
struct SortChunks {
  int32_t *ids, *places;  // [n], sorted within each chunk
  const Id* index;
  int64_t n, chunk, skip;

  HD void operator()(int64_t i) const {
    const int64_t begin = i / chunk * chunk, end = begin + chunk < n ? begin + chunk : n;
    const int32_t own = id(i);
    int64_t rank = 0;
    for (int64_t k = begin; k < end; ++k) {
      const int32_t other = id(k);
      rank += other < own || (other == own && k < i) ? 1 : 0;
    }
    ids[begin + rank] = own;
    places[begin + rank] = int32_t(i);
  }

 private:
  HD int32_t id(int64_t i) const { return int64_t(index[i]) == skip ? skipped : int32_t(index[i]); }
};

// The same for an element of a sorted chunk among all; and where the run of its index begins.
struct MergeChunks {
  int32_t *sorted, *order, *first;  // [n]
  const int32_t *ids, *places;      // of SortChunks
  int64_t n, chunk;

  HD void operator()(int64_t i) const {
    const int64_t mine = i / chunk;
    const int32_t own = ids[i];
    int64_t rank = i % chunk, smaller = 0;
    for (int64_t other = 0; other * chunk < n; ++other) {
      const int64_t less = before(other * chunk, own, false);
      smaller += less;
      if (other != mine) rank += other < mine ? before(other * chunk, own, true) : less;
    }
    sorted[rank] = own;
    order[rank] = places[i];
    first[rank] = int32_t(smaller);
  }

 private:
  // How many of a chunk are smaller, or no larger.
  HD int64_t before(int64_t begin, int32_t own, bool equal_too) const {
    int64_t low = begin, high = begin + chunk < n ? begin + chunk : n;
    while (low < high) {
      const int64_t middle = low + (high - low) / 2;
      if (ids[middle] < own || (equal_too && ids[middle] == own))
        low = middle + 1;
      else
        high = middle;
    }
    return low - begin;
  }
};

// The runs of the sorted indices, in pieces of `length` places; the last piece of a run is shorter,
// or there is none.
struct Runs {
  static constexpr int64_t length = 32;
  const int32_t *sorted, *order, *first;
  int64_t n;

  // Are all places of the piece that begins there of one run?
  HD bool is_full(int64_t at) const {
    return at + length <= n && sorted[at + length - 1] == sorted[at];
  }
  // Has the run that begins there more than one piece?
  HD bool is_long(int64_t begin) const {
    return begin + length < n && sorted[begin + length] == sorted[begin];
  }
  // A number that no other full piece has: in each lies one multiple of the length.
  HD static int64_t number(int64_t at) { return (at + length - 1) / length; }
};

// Adds the rows of places from `at` on that have one index to sums: `count` of them, or fewer where
// the run ends before. g: the group, width: of the block of columns that begins at `first`
template <int block, class T, class Group>
HD void sum_places(const Group& g, Compute<T>* sum, const Runs& runs, const T* from, int64_t at,
                   int64_t count, int64_t dim, int64_t first, int64_t width) {
  const int32_t id = runs.sorted[at];
  for (int64_t k = at; k < at + count && k < runs.n && runs.sorted[k] == id; ++k) {
    const T* line = from + int64_t(runs.order[k]) * dim + first;
    g.template each_own<block>(width,
                               [&](int64_t i, int64_t own) { sum[own] += Compute<T>(line[i]); });
  }
}

// Sums the piece of a run that begins at a place, for a block of columns. A run of one piece is
// added to its row.
template <class T>
struct SumPieces {
  static constexpr int block = 64;
  Compute<T>*to, *pieces;  // [rows, dim], [numbers of pieces, dim]
  const T* from;
  Runs runs;
  int64_t dim, blocks;

  template <class Group>
  HD void operator()(const Group& g, int64_t index) const {
    using R = Compute<T>;
    const int64_t at = index / blocks, begin = runs.first[at];
    const int32_t id = runs.sorted[at];
    if ((at - begin) % Runs::length != 0 || id == skipped) return;
    const bool is_long = runs.is_long(begin);
    if (is_long && !runs.is_full(at)) return;  // left to JoinPieces
    const int64_t first = index % blocks * block;
    const int64_t width = first + block < dim ? block : dim - first;
    R sum[Group::template own<block>];
    g.template each_own<block>(width, [&](int64_t, int64_t k) { sum[k] = R(0); });
    sum_places<block>(g, sum, runs, from, at, Runs::length, dim, first, width);
    R* out = (is_long ? pieces + Runs::number(at) * dim : to + int64_t(id) * dim) + first;
    g.template each_own<block>(
        width, [&](int64_t i, int64_t k) { out[i] = is_long ? sum[k] : out[i] + sum[k]; });
  }
};

// Adds a run of several pieces to its row: the sums of the full ones, then the rest. The run is the
// one whose first piece has the number.
template <class T>
struct JoinPieces {
  static constexpr int block = 64;
  Compute<T>* to;
  const Compute<T>* pieces;
  const T* from;
  Runs runs;
  int64_t dim, blocks;

  template <class Group>
  HD void operator()(const Group& g, int64_t index) const {
    using R = Compute<T>;
    const int64_t number = index / blocks;
    const int64_t begin = runs.first[number * Runs::length];
    const int32_t id = runs.sorted[begin];
    if (Runs::number(begin) != number || id == skipped || !runs.is_long(begin)) return;
    const int64_t first = index % blocks * block;
    const int64_t width = first + block < dim ? block : dim - first;
    R sum[Group::template own<block>], rest[Group::template own<block>];
    g.template each_own<block>(width, [&](int64_t, int64_t k) { sum[k] = rest[k] = R(0); });
    int64_t at = begin;
    for (; at < runs.n && runs.sorted[at] == id && runs.is_full(at); at += Runs::length) {
      const R* piece = pieces + Runs::number(at) * dim + first;
      g.template each_own<block>(width, [&](int64_t i, int64_t k) { sum[k] += piece[i]; });
    }
    if (at < runs.n && runs.sorted[at] == id)
      sum_places<block>(g, rest, runs, from, at, Runs::length, dim, first, width);
    R* row = to + int64_t(id) * dim + first;
    g.template each_own<block>(width, [&](int64_t i, int64_t k) { row[i] += sum[k] + rest[k]; });
  }
};

template <class T, class Id>
static void add_sorted_rows(const Tensor& to, const Tensor& from, const Tensor& index,
                            int64_t skip) {
  using R = Compute<T>;
  const memory::Scope scope(memory::Category::workspace);
  const Device device = to.device();
  const int64_t n = index.numel(), dim = to.size(1);
  check(to.size(0) < skipped && n < skipped,
        "add_rows: {} rows for a table of {} are too many, a device takes 2147483646 of each", n,
        to.size(0));
  if (n == 0) return;
  // The work of the first kernel grows with the chunk, that of the second with their number.
  const int64_t chunk = n <= 4096 ? 256 : 1024;
  const auto integers = [&] { return to.new_empty({n}, DType::i32); };
  const Tensor ids = integers(), places = integers();
  launch_elements(device, n,
                  SortChunks<Id>{ids.data<int32_t>(), places.data<int32_t>(), index.data<Id>(), n,
                                 chunk, skip});
  const Tensor sorted = integers(), order = integers(), first = integers();
  launch_elements(device, n,
                  MergeChunks{sorted.data<int32_t>(), order.data<int32_t>(), first.data<int32_t>(),
                              ids.data<int32_t>(), places.data<int32_t>(), n, chunk});

  const Runs runs{sorted.data<int32_t>(), order.data<int32_t>(), first.data<int32_t>(), n};
  const int64_t blocks = (dim + SumPieces<T>::block - 1) / SumPieces<T>::block;
  const int64_t numbers = (n + Runs::length - 1) / Runs::length;
  const Tensor pieces = to.new_empty({numbers, dim});
  // A warp is enough for a block of columns.
  launch_rows(device, n * blocks, SumPieces<T>::block,
              SumPieces<T>{to.data<R>(), pieces.data<R>(), from.data<T>(), runs, dim, blocks});
  if (n > Runs::length)
    launch_rows(device, numbers * blocks, JoinPieces<T>::block,
                JoinPieces<T>{to.data<R>(), pieces.data<R>(), from.data<T>(), runs, dim, blocks});
}

void add_rows(const Tensor& to, const Tensor& from, const Tensor& index, int64_t skip) {
  const int64_t n = index.numel(), dim = to.size(1);
  dispatch_index(index.dtype(), "add_rows", [&]<class Id>() {
    dispatch_float(from.dtype(), "add_rows", [&]<class T>() {
      using Kernel = AddRows<T, Id>;
      if (!to.device().is_cpu())
        add_sorted_rows<T, Id>(to, from, index, skip);
      else
        launch_rows(to.device(), (dim + Kernel::block - 1) / Kernel::block, n * Kernel::block,
                    Kernel{to.data<Compute<T>>(), from.data<T>(), index.data<Id>(), n, dim, skip});
    });
  });
}

}  // namespace minim
