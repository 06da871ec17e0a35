#pragma once

#include <cstdint>

#include "optim/any_optimizer.h"
#include "optim/clip.h"

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
//
// On a CUDA device nothing of that is waited for once the scale is there:
//
//   scaler.to(device);
//   scaler.scale(loss).backward();
//   const auto [norm, coefficient] = scaler.clip_on_device(model.parameters(), 1.0);
//   scaler.step(optimizer, {.gradient_factor = coefficient});
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
  // Keeps scale and counts on that device from now on, where the gradients are.
  void to(Device device);

  // The loss times the scale, to call backward() on.
  Tensor scale(const Tensor& loss) const;
  // gradient_norm() of the gradients of the loss itself; waits for a device.
  double unscaled_norm(const NamedTensors& parameters) const;
  // clip_on_device(), to skip, for the gradients of the loss itself; waits for nothing.
  Clipping clip_on_device(const NamedTensors& parameters, double max_norm) const;
  // The optimizer's step, told of the gradients of the loss itself. Where they are not finite it is
  // left out: false, and the optimizer's state, its own count of steps too, is as before. Without
  // a gradient_norm among the options it is computed. With the scale on a device the
  // gradient_factor is to be that of clip_on_device() above, and is computed where it is left out;
  // whether the step is, the device knows alone, and this is true.
  bool step(AnyOptimizer& optimizer, StepOptions options = {});
  // After each step: halves the scale if that was left out, doubles it after growth_interval good
  // ones.
  void update();

  // These wait for a device that has the scale.
  double get_scale() const { return state().scale; }
  int64_t skipped_steps() const { return state().skipped_steps; }
  const State& state() const;
  // What update() makes of a state.
  State updated(const State& state, bool found_inf) const;
  // Throws for a scale that is no positive number, or counts below 0.
  void load_state(const State& state);

 private:
  void put_there();

  GradScalerOptions options_;
  mutable State state_;  // where there_ is defined, as it was read last
  bool found_inf_ = false;
  Tensor there_;    // f64 [3] on a CUDA device: the members of State
  Tensor factor_;   // f32 [] beside it: the scale
  Tensor outcome_;  // the coefficient of the step before update(), NaN where that was left out
};

}  // namespace minim::optim
