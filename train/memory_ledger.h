#pragma once

#include <cstdint>

#include "nn/module.h"
#include "optim/state_size.h"

namespace minim::train {

// What a run needs by category, predicted before it: bytes, and the numbers that they hold.
struct MemoryLedger {
  Device device;  // of the model, whose memory is measured
  int64_t predicted_weights = 0, predicted_gradients = 0, predicted_optimizer_state = 0;
  int64_t parameters = 0, trained_parameters = 0;
  int64_t optimizer_state_elements = 0;  // in tensors; step counters are not among them

  // From the parameters that are trained and what the optimizer says it will keep.
  MemoryLedger(const nn::Module& model, const optim::StateSize& optimizer_state);
};

}  // namespace minim::train
