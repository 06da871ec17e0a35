#pragma once

#include <cstdint>
#include <limits>

#include "core/cuda/launch_list.h"
#include "optim/adafactor_kernels.h"
#include "optim/step_elements.h"

// Adafactor's step on a device, where all parameters go through each pass together and the sizes
// that decide on clipping never leave it; private to optim/.
namespace minim::optim {

// Numbers of a step that every pass may need.
template <class R>
struct AdafactorPassNumbers {
  double gradient_scale;
  const double* gradient_factor;
  const int64_t* left_out;  // steps among those counted that were not made, or null
  R keep, weight, added, least_mean, largest, beta1;
  MoveScale move;
  AdafactorTime time;
  bool operator==(const AdafactorPassNumbers&) const = default;

  // Those of the step that this is on the device.
  HD AdafactorPassNumbers now() const {
    AdafactorPassNumbers n = *this;
    if (left_out == nullptr || *left_out == 0) return n;
    n.time.step -= double(*left_out);
    const double moved = n.time.weight();
    n.keep = R(1.0 - moved);
    n.weight = R(moved);
    n.move.rate = n.time.rate();
    return n;
  }

  HD R scale() const {
    return R(gradient_scale * (gradient_factor != nullptr ? *gradient_factor : 1.0));
  }
};

// Where everything of a parameter lies.
template <class T>
struct AdafactorTensors {
  using R = Compute<T>;
  T* p;
  const T* g;
  R *row, *column, *square, *update;  // the averages
  R *factor, *sums, *mean;            // of a matrix: for work
  R* row_sums;                        // [strips, matrices, rows], the same
  double *p_squares, *squares;        // of each tile and strip, of each tile; of each block
  R* moves;                           // [2]: what remains of p, and the scale of its update
  double* rms;                        // or null
  Tiles tiles;                        // of a vector: rows of one block each
  int64_t n, strips, p_parts;         // p_parts: the number of p_squares
  int64_t aligned;                    // may rows be read in fours?
  bool operator==(const AdafactorTensors&) const = default;

  HD Factors<R> factors(R largest) const { return {row, mean, factor, largest}; }
};

// A pass: a row kernel made of the two.
template <class T>
struct AdafactorPass {
  using R = Compute<T>;
  using Tensors = AdafactorTensors<T>;
  using Numbers = AdafactorPassNumbers<R>;
  Tensors tensors;
  Numbers numbers;

  // MoveWeight as the device has found it.
  template <bool averaged>
  HD MoveWeight<T, averaged> move() const {
    return {tensors.p,        tensors.update, tensors.moves[0],
            tensors.moves[1], numbers.beta1,  R(1) - numbers.beta1};
  }
};

// Columns that a block of threads takes at a time, four by each.
inline constexpr int64_t strip_columns = 4 * cuda::block_threads;

// The sums of squares of one strip of a tile. A thread keeps those of its columns in registers, and
// rows are summed by warps, so that no row waits for another.
template <class T>
struct MatrixSquaresPass : AdafactorPass<T> {
  using R = Compute<T>;

  __device__ void operator()(const cuda::BlockGroup& group, int64_t part) const {
    constexpr int lanes = cuda::warp_lanes, warps = cuda::block_threads / lanes;
    constexpr int64_t batch = 64;  // rows between barriers
    SHARED(R, of_warp, [batch][warps]);
    const AdafactorTensors<T>& t = this->tensors;
    const Tiles& s = t.tiles;
    const int64_t tile = part / t.strips, strip = part % t.strips;
    const int64_t column = strip * strip_columns + 4 * int64_t(threadIdx.x);
    const int64_t matrix_row = s.matrix(tile) * s.rows, begin = tile % s.per_matrix * s.height;
    const int64_t end = begin + s.height < s.rows ? begin + s.height : s.rows;
    const int warp = int(threadIdx.x) / lanes;
    const R scale = this->numbers.scale();

    R of_columns[4] = {};
    double p_squares = 0;
    for (int64_t first = begin; first < end; first += batch) {
      const int64_t last = first + batch < end ? first + batch : end;
      for (int64_t i = first; i < last; ++i) {
        const int64_t at = (matrix_row + i) * s.columns + column;
        const Four<T> g = read(t.g + at, s.columns - column);
        const Four<T> p = read(t.p + at, s.columns - column);
        R of_row = 0, of_p = 0;
        for (int k = 0; k < 4; ++k) {
          const R x = R(g.at[k]) * scale;
          of_columns[k] += x * x;
          of_row += x * x;
          of_p += R(p.at[k]) * R(p.at[k]);
        }
        p_squares += double(of_p);
        of_row = cuda::reduce_warp(of_row, cuda::SumOp());
        if (int(threadIdx.x) % lanes == 0) of_warp[i - first][warp] = of_row;
      }
      __syncthreads();
      group.each(last - first, [&](int64_t k) {
        R sum = 0;
        for (int w = 0; w < warps; ++w)
          sum += of_warp[k][w];
        t.row_sums[strip * s.matrices * s.rows + matrix_row + first + k] = sum;
      });
      __syncthreads();
    }
    for (int k = 0; k < 4; ++k)
      if (column + k < s.columns) t.sums[tile * s.columns + column + k] = of_columns[k];
    const double total = group.sum(group.size(), [=](int64_t) { return p_squares; });
    if (group.leader()) t.p_squares[part] = total;
  }

 private:
  // Four neighbours, of which `left` are in the row.
  __device__ Four<T> read(const T* from, int64_t left) const {
    if (this->tensors.aligned != 0 && left >= 4) return *reinterpret_cast<const Four<T>*>(from);
    Four<T> four{};
    for (int k = 0; k < 4; ++k)
      if (k < left) four.at[k] = from[k];
    return four;
  }
};

template <class T>
struct VectorSquaresPass : AdafactorPass<T> {
  template <class Group>
  HD void operator()(const Group& group, int64_t block) const {
    const AdafactorTensors<T>& t = this->tensors;
    const AdafactorPassNumbers<Compute<T>> n = this->numbers.now();
    VectorSquares<T>{t.p,       t.g,    t.square, t.p_squares, t.squares, t.n,
                     n.scale(), n.keep, n.weight, n.added,     n.largest}(group, block);
  }
};

// Columns are taken by so many at a time.
inline constexpr int64_t columns_at_once = 128;

template <class T>
struct MatrixColumnsPass : AdafactorPass<T> {
  template <class Group>
  HD void operator()(const Group& group, int64_t part) const {
    const AdafactorTensors<T>& t = this->tensors;
    const AdafactorPassNumbers<Compute<T>> n = this->numbers.now();
    const Tiles& s = t.tiles;
    const FactoredColumns<Compute<T>> kernel{t.column,     t.factor, t.sums,   s.rows, s.columns,
                                             s.per_matrix, n.keep,   n.weight, n.added};
    const int64_t first = part * columns_at_once, left = s.matrices * s.columns - first;
    group.each(left < columns_at_once ? left : columns_at_once,
               [&](int64_t j) { kernel(first + j); });
  }
};

// The averages of a matrix's rows, and their mean.
template <class T>
struct MatrixMeansPass : AdafactorPass<T> {
  template <class Group>
  HD void operator()(const Group& group, int64_t matrix) const {
    using R = Compute<T>;
    const AdafactorTensors<T>& t = this->tensors;
    const AdafactorPassNumbers<R> n = this->numbers.now();
    const Tiles& s = t.tiles;
    group.each(s.rows, [&](int64_t i) {
      const int64_t at = matrix * s.rows + i;
      R sum = 0;
      for (int64_t k = 0; k < t.strips; ++k)
        sum += t.row_sums[k * s.matrices * s.rows + at];
      t.row[at] = moved_average(t.row[at], n.keep, n.weight, sum / R(s.columns), n.added);
    });
    MeanOfRows<R>{t.mean, t.row, s.rows, n.least_mean}(group, matrix);
  }
};

// The size of the update of a tile. A thread adds up what it meets.
template <class T>
struct MatrixUpdatePass : AdafactorPass<T> {
  using R = Compute<T>;

  __device__ void operator()(const cuda::BlockGroup& group, int64_t tile) const {
    const AdafactorTensors<T>& t = this->tensors;
    const int64_t n = t.tiles.columns, matrix = t.tiles.matrix(tile);
    const Factors<R> f = t.factors(this->numbers.largest);
    const R* const column = f.column + matrix * n;
    const R scale = this->numbers.scale();
    R own = 0;
    t.tiles.each_row(tile, [&](int64_t i) {
      const T* const gi = t.g + i * n;
      const R of_row = f.of_row(i, matrix);
      group.each(n, [&](int64_t j) {
        const R x = R(gi[j]) * scale * f.limited(of_row * column[j]);
        own += x * x;
      });
    });
    const double sum = group.sum(group.size(), [=](int64_t) { return double(own); });
    if (group.leader()) t.squares[tile] = sum;
  }
};

// The scale of a parameter's move, once the sizes of parameter and update are known.
template <class T>
struct ScalePass : AdafactorPass<T> {
  template <class Group>
  HD void operator()(const Group& group, int64_t) const {
    const AdafactorTensors<T>& t = this->tensors;
    const AdafactorPassNumbers<Compute<T>> n = this->numbers.now();
    const double *const p_squares = t.p_squares, *const squares = t.squares;
    const int64_t count = t.tiles.count();
    const double of_p = group.sum(t.p_parts, [=](int64_t i) { return p_squares[i]; });
    const double of_update = group.sum(count, [=](int64_t i) { return squares[i]; });
    if (!group.leader()) return;
    const double rms = math::sqrt(of_p / double(t.n));
    const MoveScale::Result move = n.move.of(rms, math::sqrt(of_update / double(t.n)));
    t.moves[0] = Compute<T>(move.remaining);
    t.moves[1] = Compute<T>(move.scale);
    if (t.rms != nullptr) *t.rms = rms;
  }
};

template <class T, bool averaged>
struct MatrixMovePass : AdafactorPass<T> {
  template <class Group>
  HD void operator()(const Group& group, int64_t tile) const {
    const auto& [t, n] = static_cast<const AdafactorPass<T>&>(*this);
    FactoredMove<T, averaged>{t.g, t.tiles, t.factors(n.largest), this->template move<averaged>(),
                              n.scale()}(group, tile);
  }
};

template <class T, bool averaged>
struct VectorMovePass : AdafactorPass<T> {
  template <class Group>
  HD void operator()(const Group& group, int64_t block) const {
    const auto& [t, n] = static_cast<const AdafactorPass<T>&>(*this);
    const VectorMove<T, averaged> kernel{t.g, t.square, this->template move<averaged>(), n.scale(),
                                         n.largest};
    const int64_t first = block * element_grain, left = t.n - first;
    group.each(left < element_grain ? left : element_grain, [&](int64_t i) { kernel(first + i); });
  }
};

// Adds a parameter's step to those that the optimizer launches together.
template <class T>
void add_adafactor_steps(const Update& u, const AdafactorAverages& averages,
                         const AdafactorNumbers& n) {
  using R = Compute<T>;
  constexpr int64_t tile_elements = 16384, most_tiles = 256;
  enum Stage { squares, factors, update_squares, scales, moves };
  const double moved = n.time.weight();
  const AdafactorPassNumbers<R> numbers = {
      n.negate ? -u.gradient_scale : u.gradient_scale,
      u.gradient_factor,
      u.left_out,
      R(1.0 - moved),
      R(moved),
      R(n.added),
      R(n.least_mean),
      R(std::min(n.largest_factor, double(std::numeric_limits<R>::max()))),
      R(n.beta1),
      move_scale(n),
      n.time};
  const auto data = [](const Tensor& x) { return x.defined() ? x.data<R>() : nullptr; };
  AdafactorTensors<T> t{};
  t.p = u.parameter.data<T>();
  t.g = u.gradient.data<T>();
  t.row = data(averages.row);
  t.column = data(averages.column);
  t.square = data(averages.square);
  t.update = data(averages.update);
  t.rms = averages.rms.defined() ? averages.rms.data<double>() : nullptr;
  t.n = u.parameter.numel();
  cuda::LaunchList& list = *u.launches;
  const auto scratch = [&](int64_t size) {
    return list.scratch(Shape{size}, dtype_of<R>).template data<R>();
  };
  const auto add = [&]<class Pass>(Stage stage, int64_t rows) {
    list.add<Pass>(stage, rows, t, numbers);
  };

  const bool matrices = is_factored(u.parameter.shape());
  const int64_t blocks = (t.n + element_grain - 1) / element_grain;
  t.tiles = matrices ? Tiles::of(u.parameter.shape(), tile_elements, most_tiles)
                     : Tiles{1, blocks, element_grain, blocks, 1};
  const int64_t tiles = t.tiles.count(), columns = t.tiles.matrices * t.tiles.columns;
  t.strips = matrices ? (t.tiles.columns + strip_columns - 1) / strip_columns : 1;
  t.p_parts = tiles * t.strips;
  t.aligned = is_aligned(t.p) && is_aligned(t.g) && t.tiles.columns % 4 == 0;
  double* const sizes = list.scratch(Shape{t.p_parts + tiles}, DType::f64).template data<double>();
  t.p_squares = sizes;
  t.squares = sizes + t.p_parts;
  t.moves = scratch(2);
  if (matrices) {
    t.factor = scratch(columns);
    t.sums = scratch(tiles * t.tiles.columns);
    t.mean = scratch(t.tiles.matrices);
    t.row_sums = scratch(t.strips * t.tiles.matrices * t.tiles.rows);
    add.template operator()<MatrixSquaresPass<T>>(squares, t.p_parts);
    add.template operator()<MatrixColumnsPass<T>>(
        factors, (columns + columns_at_once - 1) / columns_at_once);
    add.template operator()<MatrixMeansPass<T>>(factors, t.tiles.matrices);
    add.template operator()<MatrixUpdatePass<T>>(update_squares, tiles);
  } else {
    add.template operator()<VectorSquaresPass<T>>(squares, blocks);
  }
  add.template operator()<ScalePass<T>>(scales, 1);
  const bool averaged = averages.update.defined();
  if (matrices)
    averaged ? add.template operator()<MatrixMovePass<T, true>>(moves, tiles)
             : add.template operator()<MatrixMovePass<T, false>>(moves, tiles);
  else
    averaged ? add.template operator()<VectorMovePass<T, true>>(moves, blocks)
             : add.template operator()<VectorMovePass<T, false>>(moves, blocks);
}

}  // namespace minim::optim
