#pragma once

#include <limits>
#include <optional>

#include "core/math.h"
#include "optim/optimizer.h"

// What the two forms of Adafactor share; private to optim/.
namespace minim::optim {

// The averages of one parameter; those that it does not have are undefined.
struct AdafactorAverages {
  Tensor row, column;  // of a parameter of two or more dimensions
  Tensor square;       // of a vector or scalar
  Tensor update;       // of the updates
  Tensor rms;          // f64 [1], where a device leaves the RMS of the parameter
};

// What follows from the number of a step, t.
struct AdafactorTime {
  double step;
  double decay_rate;
  double most;         // the rate, or how large it may be
  double growth = 0;   // or growth * t, if that is positive
  bool falls = false;  // whether the rate is at most 1 / sqrt(t)
  bool operator==(const AdafactorTime&) const = default;

  HD double rate() const {
    const double given = growth > 0 ? growth * step : most, last = 1.0 / math::sqrt(step);
    return falls && last < given ? last : given;
  }
  // Of this step's squares in their averages.
  HD double weight() const { return math::pow(step, decay_rate); }
};

// The numbers of one step of one parameter.
struct AdafactorNumbers {
  AdafactorTime time;
  std::optional<double> least_scale;  // the rate is times max(this, RMS(p))
  double decay, decay_times_rate;     // p loses decay + decay_times_rate * rate of itself
  double added = 0;                   // to each square
  double least_mean = 0;              // of the averages of rows, where V is divided by their mean
  double largest_factor = std::numeric_limits<double>::max();  // 1 / sqrt(V)
  double threshold;                                            // largest RMS of an update
  double beta1 = 0;                                            // of the average of updates
  bool negate = false;                                         // the gradient
};

// One step; returns the RMS of the parameter before it where it is known at once. Deterministic for
// any number of threads.
double adafactor_update(const Update& u, const AdafactorAverages& averages,
                        const AdafactorNumbers& numbers);

// Is a parameter of this shape a stack of matrices, whose second moment is kept in factors?
inline bool is_factored(const Shape& shape) {
  return shape.rank() >= 2;
}

}  // namespace minim::optim
