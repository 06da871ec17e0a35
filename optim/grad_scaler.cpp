#include "optim/grad_scaler.h"

#include <cmath>

#include "autograd/ops.h"
#include "optim/clip.h"

namespace minim::optim {

GradScaler::GradScaler(GradScalerOptions options) : options_(options) {
  const auto positive = [](double value) { return std::isfinite(value) && value > 0; };
  check(positive(options.init_scale), "grad_scaler: init_scale is {}, must be above 0",
        options.init_scale);
  check(positive(options.growth_factor) && options.growth_factor > 1,
        "grad_scaler: growth_factor is {}, must be above 1", options.growth_factor);
  check(options.backoff_factor > 0 && options.backoff_factor < 1,
        "grad_scaler: backoff_factor is {}, must lie between 0 and 1", options.backoff_factor);
  check(options.growth_interval >= 1, "grad_scaler: growth_interval is {}, must be at least 1",
        options.growth_interval);
  state_.scale = options.enabled ? options.init_scale : 1.0;
}

Tensor GradScaler::scale(const Tensor& loss) const {
  return state_.scale == 1.0 ? loss : loss * state_.scale;
}

double GradScaler::unscaled_norm(const NamedTensors& parameters) const {
  return gradient_norm(parameters) / state_.scale;
}

bool GradScaler::step(AnyOptimizer& optimizer, StepOptions options) {
  if (!options_.enabled) return optimizer.step(options);
  if (!options.gradient_norm) {
    NamedTensors parameters;
    for (const ParameterGroup& group : optimizer.groups())
      parameters.insert(parameters.end(), group.parameters.begin(), group.parameters.end());
    options.gradient_norm = unscaled_norm(parameters);
  }
  if (!std::isfinite(*options.gradient_norm)) {
    found_inf_ = true;
    ++state_.skipped_steps;
    return false;
  }
  options.gradient_scale /= state_.scale;
  return optimizer.step(options);
}

void GradScaler::update() {
  if (!options_.enabled) return;
  if (found_inf_) {
    state_.scale *= options_.backoff_factor;
    state_.growth_tracker = 0;
  } else if (++state_.growth_tracker == options_.growth_interval) {
    // The product of a loss and the scale is f32.
    const double grown = state_.scale * options_.growth_factor;
    if (std::isfinite(float(grown))) state_.scale = grown;
    state_.growth_tracker = 0;
  }
  found_inf_ = false;
}

void GradScaler::load_state(const State& state) {
  check(std::isfinite(state.scale) && state.scale > 0,
        "grad_scaler: the scale is {}, must be above 0", state.scale);
  check(state.growth_tracker >= 0 && state.skipped_steps >= 0,
        "grad_scaler: growth_tracker {} and skipped_steps {} must not be negative",
        state.growth_tracker, state.skipped_steps);
  state_ = state;
  found_inf_ = false;
}

}  // namespace minim::optim
