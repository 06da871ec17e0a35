#pragma once

#include <limits>
#include <optional>

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

// The numbers of one step of one parameter.
struct AdafactorNumbers {
  double rate;
  std::optional<double> least_scale;  // the rate is times max(this, RMS(p))
  double decay, decay_times_rate;     // p loses decay + decay_times_rate * rate of itself
  double weight;                      // of this step's squares in their averages
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
