#include "optim/adafactor_update.h"

#include <algorithm>
#include <cmath>

#include "core/launch.h"
#include "optim/adafactor_kernels.h"

#if defined(MINIM_WITH_CUDA)
#include "optim/adafactor_device.h"
#endif

// The passes over a parameter on the CPU, one after the other.
namespace minim::optim {

namespace {

double rms(const Tensor& squares, int64_t n) {
  double sum = 0;
  for (const double partial : squares.values<double>())
    sum += partial;
  return std::sqrt(sum / double(n));
}

// Calls use.operator()<averaged>(move), where the sizes of p and of U have set rate and clipping.
template <class T, class Use>
void move_weights(const Update& u, const AdafactorAverages& averages, const AdafactorNumbers& n,
                  double rms_of_p, double rms_of_update, const Use& use) {
  using R = Compute<T>;
  const auto move = move_scale(n).of(rms_of_p, rms_of_update);
  const auto with = [&]<bool averaged>() {
    use(MoveWeight<T, averaged>{u.parameter.data<T>(),
                                averaged ? averages.update.data<R>() : nullptr, R(move.remaining),
                                R(move.scale), R(n.beta1), R(1.0 - n.beta1)});
  };
  averages.update.defined() ? with.template operator()<true>() : with.template operator()<false>();
}

template <class T>
double update_factored(const Update& u, const AdafactorAverages& averages,
                       const AdafactorNumbers& n) {
  using R = Compute<T>;
  const Device device = u.parameter.device();
  const Tiles tiles = Tiles::of(u.parameter.shape(), element_grain, 64);
  const T *const p = u.parameter.data<T>(), *const g = u.gradient.data<T>();
  R *const row = averages.row.data<R>(), *const column = averages.column.data<R>();
  const R scale = R(n.negate ? -u.gradient_scale : u.gradient_scale);
  const double moved = n.time.weight();
  const R keep = R(1.0 - moved), weight = R(moved), added = R(n.added);
  const int64_t tile_size = tiles.height * tiles.columns, columns = tiles.matrices * tiles.columns;

  const Tensor squares = Tensor::empty({tiles.count()}, DType::f64);
  const Tensor factor = Tensor::empty({columns}, dtype_of<R>);
  const Tensor sums = Tensor::empty({tiles.count(), tiles.columns}, dtype_of<R>);
  launch_rows(device, tiles.count(), tile_size,
              FactoredSquares<T>{p, g, row, sums.data<R>(), squares.data<double>(), tiles, scale,
                                 keep, weight, added});
  launch_elements(device, columns,
                  FactoredColumns<R>{column, factor.data<R>(), sums.data<R>(), tiles.rows,
                                     tiles.columns, tiles.per_matrix, keep, weight, added});
  const double rms_of_p = rms(squares, u.parameter.numel());
  const Tensor mean = Tensor::empty({tiles.matrices}, dtype_of<R>);
  launch_rows(device, tiles.matrices, tiles.rows,
              MeanOfRows<R>{mean.data<R>(), row, tiles.rows, R(n.least_mean)});

  const double largest = std::min(n.largest_factor, double(std::numeric_limits<R>::max()));
  const Factors<R> factors{row, mean.data<R>(), factor.data<R>(), R(largest)};
  launch_rows(
      device, tiles.count(), tile_size,
      FactoredUpdateSquares<T>{g, sums.data<R>(), squares.data<double>(), tiles, factors, scale});
  move_weights<T>(u, averages, n, rms_of_p, rms(squares, u.parameter.numel()),
                  [&]<bool averaged>(const MoveWeight<T, averaged>& move) {
                    launch_rows(device, tiles.count(), tile_size,
                                FactoredMove<T, averaged>{g, tiles, factors, move, scale});
                  });
  return rms_of_p;
}

template <class T>
double update_vector(const Update& u, const AdafactorAverages& averages,
                     const AdafactorNumbers& n) {
  using R = Compute<T>;
  const Device device = u.parameter.device();
  const T *const p = u.parameter.data<T>(), *const g = u.gradient.data<T>();
  R* const square = averages.square.data<R>();
  const int64_t size = u.parameter.numel(), blocks = (size + element_grain - 1) / element_grain;
  const R scale = R(n.negate ? -u.gradient_scale : u.gradient_scale);
  const R largest = R(std::min(n.largest_factor, double(std::numeric_limits<R>::max())));
  const double weight = n.time.weight();

  const Tensor p_squares = Tensor::empty({blocks}, DType::f64);
  const Tensor squares = Tensor::empty({blocks}, DType::f64);
  launch_rows(device, blocks, element_grain,
              VectorSquares<T>{p, g, square, p_squares.data<double>(), squares.data<double>(), size,
                               scale, R(1.0 - weight), R(weight), R(n.added), largest});
  const double rms_of_p = rms(p_squares, size);
  move_weights<T>(
      u, averages, n, rms_of_p, rms(squares, size),
      [&]<bool averaged>(const MoveWeight<T, averaged>& move) {
        launch_elements(device, size, VectorMove<T, averaged>{g, square, move, scale, largest});
      });
  return rms_of_p;
}

}  // namespace

double adafactor_update(const Update& u, const AdafactorAverages& averages,
                        const AdafactorNumbers& numbers) {
  if (u.parameter.numel() == 0) return 0.0;
  double rms_of_p = 0;
  dispatch_float(u.parameter.dtype(), "adafactor", [&]<class T>() {
#if defined(MINIM_WITH_CUDA)
    if (u.launches != nullptr) return add_adafactor_steps<T>(u, averages, numbers);
#endif
    rms_of_p = is_factored(u.parameter.shape()) ? update_factored<T>(u, averages, numbers)
                                                : update_vector<T>(u, averages, numbers);
  });
  return rms_of_p;
}

}  // namespace minim::optim
