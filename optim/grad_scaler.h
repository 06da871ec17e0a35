#pragma once

#include <cstdint>

#include "optim/any_optimizer.h"

namespace minim::optim {

// The defaults are those of PyTorch's GradScaler.
struct GradScalerOptions {
  bool enabled = true;  // false: a scale of 1 that never changes, and no step is left out
  double init_scale = 65536.0;
  double growth_factor = 2.0, backoff_factor = 0.5;
  int64_t growth_interval = 2000;  // updates in a row with finite gradients before it grows
};

// Loss scaling for training in f16, whose smallest number is 6e-8 (Micikevicius et al., 2018): the
// loss is multiplied so that small gradients are not rounded to 0, a step divides by it again, and
// the scale follows what the gradients bear. As PyTorch's GradScaler, but that gradients are
// divided as the optimizer reads them, in .grad() they stay scaled.
//
//   scaler.scale(loss).backward();
//   const double norm = scaler.unscaled_norm(model.parameters());
//   scaler.step(optimizer, {.gradient_scale = clip_coefficient(norm, 1.0), .gradient_norm = norm});
//   scaler.update();
//   optimizer.zero_grad();
class GradScaler {
 public:
  // What a checkpoint has to keep.
  struct State {
    double scale = 1.0;
    int64_t growth_tracker = 0;  // updates since the scale changed
    int64_t skipped_steps = 0;
    bool operator==(const State&) const = default;
  };

  // Throws for options that make no sense.
  explicit GradScaler(GradScalerOptions options = {});

  bool is_enabled() const { return options_.enabled; }
  const GradScalerOptions& options() const { return options_; }
  // The loss times the scale, to call backward() on.
  Tensor scale(const Tensor& loss) const;
  // gradient_norm() of the gradients of the loss itself; waits for a device.
  double unscaled_norm(const NamedTensors& parameters) const;
  // The optimizer's step, told of the gradients of the loss itself. Where they are not finite it is
  // left out: false, and the optimizer's state, its own count of steps too, is as before. Without
  // a gradient_norm among the options it is computed.
  bool step(AnyOptimizer& optimizer, StepOptions options = {});
  // After each step: halves the scale if that was left out, doubles it after growth_interval good
  // ones.
  void update();

  double get_scale() const { return state_.scale; }
  int64_t skipped_steps() const { return state_.skipped_steps; }
  const State& state() const { return state_; }
  // Throws for a scale that is no positive number, or counts below 0.
  void load_state(const State& state);

 private:
  GradScalerOptions options_;
  State state_;
  bool found_inf_ = false;
};

}  // namespace minim::optim
