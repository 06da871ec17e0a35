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
// index; pieces of runs are summed side by side.

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

// The same for an element of a sorted chunk among all.
struct MergeChunks {
  int32_t *sorted, *order;      // [n]
  const int32_t *ids, *places;  // of SortChunks
  int64_t n, chunk;

  HD void operator()(int64_t i) const {
    const int64_t mine = i / chunk;
    const int32_t own = ids[i];
    int64_t rank = i % chunk;
    for (int64_t other = 0; other * chunk < n; ++other)
      if (other != mine) rank += before(other * chunk, own, other < mine);
    sorted[rank] = own;
    order[rank] = places[i];
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

// Where a piece of `length` sorted places begins and ends, and which of its runs go beyond it.
struct RunPieces {
  const int32_t *sorted, *order;
  int64_t n, length;

  HD int64_t count() const { return (n + length - 1) / length; }
  HD int64_t begin(int64_t piece) const { return piece * length; }
  HD int64_t end(int64_t piece) const {
    return (piece + 1) * length < n ? (piece + 1) * length : n;
  }
  // Does the run of the place go on from the one before?
  HD bool continues(int64_t place) const {
    return place > 0 && place < n && sorted[place] == sorted[place - 1];
  }
};

// Sums the runs of a piece, for a block of columns. A run that lies in the piece is added to its
// row; one that the piece before began is its head, another that goes on in the next its tail.
template <class T>
struct SumRuns {
  static constexpr int block = 64;
  Compute<T>*to, *heads, *tails;  // [rows, dim], [pieces, dim], the same
  const T* from;
  RunPieces runs;
  int64_t dim, blocks;

  template <class Group>
  HD void operator()(const Group& g, int64_t index) const {
    using R = Compute<T>;
    const int64_t piece = index / blocks, first = index % blocks * block;
    const int64_t width = first + block < dim ? block : dim - first;
    const int64_t begin = runs.begin(piece), end = runs.end(piece);
    R sum[Group::template own<block>];
    for (int64_t at = begin; at < end;) {
      const int32_t id = runs.sorted[at];
      if (id == skipped) return;
      const bool is_head = at == begin && runs.continues(at);
      g.template each_own<block>(width, [&](int64_t, int64_t k) { sum[k] = R(0); });
      for (; at < end && runs.sorted[at] == id; ++at) {
        const T* line = from + int64_t(runs.order[at]) * dim + first;
        g.template each_own<block>(width, [&](int64_t i, int64_t k) { sum[k] += R(line[i]); });
      }
      if (is_head || (at == end && runs.continues(at))) {
        R* part = (is_head ? heads : tails) + piece * dim + first;
        g.template each_own<block>(width, [&](int64_t i, int64_t k) { part[i] = sum[k]; });
      } else {
        R* row = to + int64_t(id) * dim + first;
        g.template each_own<block>(width, [&](int64_t i, int64_t k) { row[i] += sum[k]; });
      }
    }
  }
};

// Adds a run that begins in a piece and goes beyond it to its row: its tail and the heads behind.
template <class R>
struct JoinRuns {
  static constexpr int block = 64;
  R* to;
  const R *heads, *tails;
  RunPieces runs;
  int64_t dim, blocks;

  template <class Group>
  HD void operator()(const Group& g, int64_t index) const {
    const int64_t piece = index / blocks, first = index % blocks * block;
    const int64_t width = first + block < dim ? block : dim - first;
    const int64_t begin = runs.begin(piece), end = runs.end(piece);
    const int32_t id = runs.sorted[end - 1];
    if (id == skipped || !runs.continues(end)) return;
    if (runs.sorted[begin] == id && runs.continues(begin)) return;  // an earlier one's
    R sum[Group::template own<block>];
    g.template each_own<block>(
        width, [&](int64_t i, int64_t k) { sum[k] = tails[piece * dim + first + i]; });
    for (int64_t next = piece + 1; next < runs.count() && runs.sorted[runs.begin(next)] == id;
         ++next) {
      const R* head = heads + next * dim + first;
      g.template each_own<block>(width, [&](int64_t i, int64_t k) { sum[k] += head[i]; });
    }
    R* row = to + int64_t(id) * dim + first;
    g.template each_own<block>(width, [&](int64_t i, int64_t k) { row[i] += sum[k]; });
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
  Tensor ids = to.new_empty({n}, DType::i32), places = to.new_empty({n}, DType::i32);
  launch_elements(device, n,
                  SortChunks<Id>{ids.data<int32_t>(), places.data<int32_t>(), index.data<Id>(), n,
                                 chunk, skip});
  if (n > chunk) {
    const Tensor sorted = to.new_empty({n}, DType::i32), order = to.new_empty({n}, DType::i32);
    launch_elements(device, n,
                    MergeChunks{sorted.data<int32_t>(), order.data<int32_t>(), ids.data<int32_t>(),
                                places.data<int32_t>(), n, chunk});
    ids = sorted;
    places = order;
  }

  constexpr int64_t least_length = 16, most_pieces = 256;
  const int64_t length = std::max(least_length, (n + most_pieces - 1) / most_pieces);
  const RunPieces runs{ids.data<int32_t>(), places.data<int32_t>(), n, length};
  const int64_t pieces = runs.count(), blocks = (dim + SumRuns<T>::block - 1) / SumRuns<T>::block;
  const Tensor heads = to.new_empty({pieces, dim}), tails = to.new_empty({pieces, dim});
  // A warp is enough for a block of columns.
  launch_rows(device, pieces * blocks, SumRuns<T>::block,
              SumRuns<T>{to.data<R>(), heads.data<R>(), tails.data<R>(), from.data<T>(), runs, dim,
                         blocks});
  if (pieces > 1)
    launch_rows(device, (pieces - 1) * blocks, JoinRuns<R>::block,
                JoinRuns<R>{to.data<R>(), heads.data<R>(), tails.data<R>(), runs, dim, blocks});
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
