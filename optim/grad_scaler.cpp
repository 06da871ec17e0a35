#include "optim/grad_scaler.h"

#include <cmath>
#include <limits>

#include "autograd/ops.h"
#include "core/launch.h"
#include "optim/clip.h"

namespace minim::optim {

// The state after an update.
struct UpdateScale {
  double* state;  // scale, growth tracker, skipped steps
  float* factor;
  const double* outcome;  // NaN where the step was left out; or null
  double growth_factor, backoff_factor, growth_interval;

  HD void operator()(int64_t) const {
    const bool found_inf = outcome != nullptr && *outcome != *outcome;
    state[0] = next(state[0], state[1], state[2], found_inf);
    *factor = float(state[0]);
  }
  // The scale after one; moves the counts on.
  HD double next(double scale, double& tracker, double& skipped, bool found_inf) const {
    if (found_inf) {
      tracker = 0;
      skipped += 1;
      return scale * backoff_factor;
    }
    tracker += 1;
    if (tracker != growth_interval) return scale;
    tracker = 0;
    // The product of a loss and the scale is f32.
    const double grown = scale * growth_factor;
    const float rounded = float(grown);
    return rounded - rounded == 0.0f ? grown : scale;
  }
};

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
  if (there_.defined()) return loss * convert(factor_, loss.dtype());
  return state_.scale == 1.0 ? loss : loss * state_.scale;
}

double GradScaler::unscaled_norm(const NamedTensors& parameters) const {
  return gradient_norm(parameters) / get_scale();
}

Clipping GradScaler::clip_on_device(const NamedTensors& parameters, double max_norm) const {
  const Tensor scale = there_.defined()      ? there_.view({1}, {1})
                       : state_.scale == 1.0 ? Tensor()
                                             : Tensor::full({1}, state_.scale, DType::f64);
  return optim::clip_on_device(parameters, max_norm, OnNonFinite::skip, scale);
}

bool GradScaler::step(AnyOptimizer& optimizer, StepOptions options) {
  if (!options_.enabled) return optimizer.step(options);
  NamedTensors parameters;
  for (const ParameterGroup& group : optimizer.groups())
    parameters.insert(parameters.end(), group.parameters.begin(), group.parameters.end());
  if (there_.defined()) {
    if (!options.gradient_factor.defined())
      options.gradient_factor =
          clip_on_device(parameters, std::numeric_limits<double>::max()).coefficient;
    options.factor_tells_non_finite = true;
    outcome_ = options.gradient_factor;
    return optimizer.step(options);
  }
  if (!options.gradient_norm) options.gradient_norm = unscaled_norm(parameters);
  if (!std::isfinite(*options.gradient_norm)) {
    found_inf_ = true;
    return false;
  }
  options.gradient_scale /= state_.scale;
  return optimizer.step(options);
}

void GradScaler::update() {
  if (!options_.enabled) return;
  if (there_.defined()) {
    const double* outcome = outcome_.defined() ? outcome_.data<double>() : nullptr;
    launch_elements(
        there_.device(), 1,
        UpdateScale{there_.data<double>(), factor_.data<float>(), outcome, options_.growth_factor,
                    options_.backoff_factor, double(options_.growth_interval)});
    there_.bump_version();
    factor_.bump_version();
    outcome_ = Tensor();
    return;
  }
  state_ = updated(state_, found_inf_);
  found_inf_ = false;
}

auto GradScaler::updated(const State& state, bool found_inf) const -> State {
  auto tracker = double(state.growth_tracker), skipped = double(state.skipped_steps);
  const UpdateScale kernel{nullptr,
                           nullptr,
                           nullptr,
                           options_.growth_factor,
                           options_.backoff_factor,
                           double(options_.growth_interval)};
  const double scale = kernel.next(state.scale, tracker, skipped, found_inf);
  return {scale, int64_t(tracker), int64_t(skipped)};
}

void GradScaler::to(Device device) {
  state();
  there_ = factor_ = outcome_ = Tensor();
  if (!options_.enabled || device.is_cpu()) return;
  const memory::Scope scope(memory::Category::workspace);
  there_ = Tensor::empty({3}, DType::f64, device);
  factor_ = Tensor::empty({}, DType::f32, device);
  put_there();
}

void GradScaler::put_there() {
  copy(there_,
       Tensor::from({state_.scale, double(state_.growth_tracker), double(state_.skipped_steps)},
                    {3}));
  fill(factor_, state_.scale);
}

auto GradScaler::state() const -> const State& {
  if (!there_.defined()) return state_;
  const std::vector<double> now = there_.to_vector<double>();
  state_ = {now[0], int64_t(now[1]), int64_t(now[2])};
  return state_;
}

void GradScaler::load_state(const State& state) {
  check(std::isfinite(state.scale) && state.scale > 0,
        "grad_scaler: the scale is {}, must be above 0", state.scale);
  check(state.growth_tracker >= 0 && state.skipped_steps >= 0,
        "grad_scaler: growth_tracker {} and skipped_steps {} must not be negative",
        state.growth_tracker, state.skipped_steps);
  state_ = state;
  found_inf_ = false;
  outcome_ = Tensor();
  if (there_.defined()) put_there();
}

}  // namespace minim::optim
