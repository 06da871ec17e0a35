#pragma once

#include <algorithm>
#include <cstdint>

#include "core/dtype.h"
#include "core/math.h"
#include "core/parallel.h"
#include "core/portable.h"
#include "core/shape.h"
#include "optim/adafactor_update.h"

// The kernels of Adafactor's step, for both devices; private to optim/.
//
// A matrix is read three times: for the averages, for the size of the update, which the clipping
// must know beforehand, and for the update itself. Nothing of its size is kept in between.
namespace minim::optim {

// A parameter as a stack of matrices [matrices, rows, columns], each cut into tiles of whole rows.
struct Tiles {
  int64_t matrices, rows, columns;
  int64_t per_matrix, height;

  // A parameter's, of about so many elements each, and at most so many for each matrix, which
  // bounds the memory for the sums of columns.
  static Tiles of(const Shape& shape, int64_t elements, int64_t most) {
    const int rank = shape.rank();
    const int64_t rows = shape[rank - 2], columns = shape[rank - 1];
    const int64_t height = std::max({int64_t(1), elements / columns, (rows + most - 1) / most});
    return {shape.numel() / (rows * columns), rows, columns, (rows + height - 1) / height, height};
  }
  bool operator==(const Tiles&) const = default;

  HD int64_t count() const { return matrices * per_matrix; }
  HD int64_t matrix(int64_t tile) const { return tile / per_matrix; }
  // Calls f(row) for each row of a tile, numbered through all matrices.
  template <class F>
  HD void each_row(int64_t tile, const F& f) const {
    const int64_t first = tile % per_matrix * height;
    const int64_t last = first + height < rows ? first + height : rows;
    for (int64_t i = first; i < last; ++i)
      f(matrix(tile) * rows + i);
  }
};

// An average of squares, moved towards the mean of new ones.
template <class R>
HD R moved_average(R old, R keep, R weight, R mean, R added) {
  return keep * old + weight * (mean + added);
}

// The averages of rows, and the sums that those of columns are made of.
template <class T>
struct FactoredSquares {
  using R = Compute<T>;
  const T *p, *g;
  R* row;             // [matrices, rows]
  R* column_sums;     // [tiles, columns], of g^2
  double* p_squares;  // [tiles], sums of p^2
  Tiles tiles;
  R gradient_scale, keep, weight, added;

  template <class Group>
  HD void operator()(const Group& group, int64_t tile) const {
    const int64_t n = tiles.columns;
    R* const sums = column_sums + tile * n;
    group.each(n, [&](int64_t j) { sums[j] = R(0); });
    double squares = 0;
    tiles.each_row(tile, [&](int64_t i) {
      const T *const gi = g + i * n, *const pi = p + i * n;
      const auto square = [&](int64_t j) {
        const R x = R(gi[j]) * gradient_scale;
        return x * x;
      };
      const R sum = group.sum(n, square);
      group.each(n, [&](int64_t j) { sums[j] += square(j); });
      squares += double(group.sum(n, [&](int64_t j) { return R(pi[j]) * R(pi[j]); }));
      if (group.leader()) row[i] = moved_average(row[i], keep, weight, sum / R(n), added);
    });
    if (group.leader()) p_squares[tile] = squares;
  }
};

// The averages of columns, from the sums of the tiles of their matrix.
template <class R>
struct FactoredColumns {
  R* column;           // [matrices, columns]
  R* factor;           // the same, 1 / sqrt(column)
  const R* tile_sums;  // [matrices, tiles per matrix, columns]
  int64_t rows, columns, tiles;
  R keep, weight, added;

  HD void operator()(int64_t i) const {
    const R* const sums = tile_sums + i / columns * tiles * columns + i % columns;
    R sum = 0;
    for (int64_t k = 0; k < tiles; ++k)
      sum += sums[k * columns];
    const R average = moved_average(column[i], keep, weight, sum / R(rows), added);
    column[i] = average;
    factor[i] = R(1) / math::sqrt(average);
  }
};

// The mean of the averages of a matrix's rows.
template <class R>
struct MeanOfRows {
  R* mean;       // [matrices]
  const R* row;  // [matrices, rows]
  int64_t rows;
  R least;

  template <class Group>
  HD void operator()(const Group& group, int64_t matrix) const {
    const R* const own = row + matrix * rows;
    const R value = group.sum(rows, [&](int64_t i) { return own[i]; }) / R(rows);
    if (group.leader()) mean[matrix] = value < least ? least : value;
  }
};

// 1 / sqrt(V) as the product of a row's and a column's factor. NaN stays NaN; zeros in V give the
// largest factor, so that a gradient that was always zero moves nothing.
template <class R>
struct Factors {
  const R *row, *mean;  // [matrices, rows], [matrices]
  const R* column;      // [matrices, columns], 1 / sqrt
  R largest;

  HD R of_row(int64_t i, int64_t matrix) const {
    return row[i] == R(0) ? largest : math::sqrt(mean[matrix] / row[i]);
  }
  HD R limited(R factor) const { return factor > largest ? largest : factor; }
};

// Sums of U^2, column by column first: a plain loop over a row vectorises with the limit in it.
template <class T>
struct FactoredUpdateSquares {
  using R = Compute<T>;
  const T* g;
  R* column_sums;   // [tiles, columns], for work
  double* squares;  // [tiles]
  Tiles tiles;
  Factors<R> factors;
  R gradient_scale;

  template <class Group>
  HD void operator()(const Group& group, int64_t tile) const {
    const int64_t n = tiles.columns, matrix = tiles.matrix(tile);
    const Factors<R> f = factors;
    const R* const column = f.column + matrix * n;
    R* const sums = column_sums + tile * n;
    group.each(n, [&](int64_t j) { sums[j] = R(0); });
    tiles.each_row(tile, [&](int64_t i) {
      const T* const gi = g + i * n;
      const R of_row = f.of_row(i, matrix);
      group.each(n, [&](int64_t j) {
        const R x = R(gi[j]) * gradient_scale * f.limited(of_row * column[j]);
        sums[j] += x * x;
      });
    });
    const double sum = group.sum(n, [&](int64_t j) { return double(sums[j]); });
    if (group.leader()) squares[tile] = sum;
  }
};

// Moves one weight along an update that is not yet scaled.
template <class T, bool averaged>
struct MoveWeight {
  using R = Compute<T>;
  T* p;
  R* average;
  R remaining;  // of the weight after its decay
  R scale;      // rate over clipping
  R beta1, weight1;

  HD void operator()(int64_t i, R update) const {
    R step = scale * update;
    if constexpr (averaged) {
      step = beta1 * average[i] + weight1 * step;
      average[i] = step;
    }
    p[i] = T(R(p[i]) * remaining - step);
  }
};

template <class T, bool averaged>
struct FactoredMove {
  using R = Compute<T>;
  const T* g;
  Tiles tiles;
  Factors<R> factors;
  MoveWeight<T, averaged> move;
  R gradient_scale;

  template <class Group>
  HD void operator()(const Group& group, int64_t tile) const {
    const int64_t n = tiles.columns, matrix = tiles.matrix(tile);
    const Factors<R> f = factors;
    const MoveWeight<T, averaged> m = move;
    const R* const column = f.column + matrix * n;
    tiles.each_row(tile, [&](int64_t i) {
      const T* const gi = g + i * n;
      const R of_row = f.of_row(i, matrix);
      group.each(n, [&](int64_t j) {
        m(i * n + j, R(gi[j]) * gradient_scale * f.limited(of_row * column[j]));
      });
    });
  }
};

// The second moment of a block of a vector, kept whole, and the sums of p^2 and U^2 over the block.
template <class T>
struct VectorSquares {
  using R = Compute<T>;
  const T *p, *g;
  R* square;
  double *p_squares, *squares;  // [blocks]
  int64_t n;
  R gradient_scale, keep, weight, added, largest;

  HD static R factor(R square, R largest) {
    const R value = R(1) / math::sqrt(square);
    return value > largest ? largest : value;
  }
  template <class Group>
  HD void operator()(const Group& group, int64_t block) const {
    const int64_t first = block * element_grain;
    const int64_t width = n - first < element_grain ? n - first : element_grain;
    const T *const gb = g + first, *const pb = p + first;
    R* const v = square + first;
    group.each(width, [&](int64_t i) {
      const R x = R(gb[i]) * gradient_scale;
      v[i] = keep * v[i] + weight * (x * x + added);
    });
    const double of_p =
        group.sum(width, [&](int64_t i) { return double(R(pb[i])) * double(R(pb[i])); });
    const double of_update = group.sum(width, [&](int64_t i) {
      const double x = double(R(gb[i]) * gradient_scale * factor(v[i], largest));
      return x * x;
    });
    if (group.leader()) {
      p_squares[block] = of_p;
      squares[block] = of_update;
    }
  }
};

template <class T, bool averaged>
struct VectorMove {
  using R = Compute<T>;
  const T* g;
  const R* square;
  MoveWeight<T, averaged> move;
  R gradient_scale, largest;

  HD void operator()(int64_t i) const {
    move(i, R(g[i]) * gradient_scale * VectorSquares<T>::factor(square[i], largest));
  }
};

// What a parameter is multiplied by and its update scaled with, found from the sizes of both.
struct MoveScale {
  double rate, least_scale;  // the rate is times max(least_scale, RMS(p)) if that is not negative
  double decay, decay_times_rate, threshold;
  bool operator==(const MoveScale&) const = default;

  struct Result {
    double remaining, scale;
  };
  HD Result of(double rms_of_p, double rms_of_update) const {
    double scaled = rate;
    if (least_scale >= 0) scaled *= least_scale < rms_of_p ? rms_of_p : least_scale;
    const double ratio = rms_of_update / threshold;
    const double clip = ratio <= 1.0 ? 1.0 : ratio;  // NaN stays
    return {1.0 - decay - decay_times_rate * scaled, scaled / clip};
  }
};

inline MoveScale move_scale(const AdafactorNumbers& n) {
  return {n.time.rate(), n.least_scale.value_or(-1.0), n.decay, n.decay_times_rate, n.threshold};
}

}  // namespace minim::optim
