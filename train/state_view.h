#pragma once

#include <optional>
#include <string>
#include <vector>

#include "optim/quantization_error.h"
#include "optim/saved_state.h"
#include "optim/summary.h"

namespace minim::train {

// What there is to see of 8-bit codes and their scales.
struct CodesView {
  int64_t block = 0, blocks = 0;
  int used = 0;                // of the 256 codes
  double commonest_share = 0;  // of the elements, with the code that most have
  float commonest_value = 0;   // what that code stands for, before scaling
  double least_scale = 0, median_scale = 0, largest_scale = 0;
  optim::QuantizationError error = {};  // the bound
};

// One tensor of a parameter's state, as numbers.
struct TensorView {
  std::string key;
  DType dtype;            // as it is stored
  int64_t bytes = 0;      // scales included; 0 for one that is computed
  bool is_stored = true;  // or computed from factors
  Tensor values = {};     // decoded
  optim::Summary summary = {};
  optim::Histogram histogram = {};
  std::optional<CodesView> codes = {};
};

// All tensors of a parameter's state, and after them the second moment that Adafactor's factors
// stand for, as "exp_avg_sq". Scales of codes are not tensors of their own.
std::vector<TensorView> view_state(const optim::SavedState& state,
                                   const optim::SavedState::Parameter& parameter);

}  // namespace minim::train
