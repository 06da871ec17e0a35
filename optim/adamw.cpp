#include "optim/adamw.h"

#include <cmath>

#include "core/launch.h"
#include "core/math.h"
#include "optim/adam_update.h"
#include "optim/option_checks.h"

namespace minim::optim {

// One element of one step; reads p, g, m and v once and writes p, m and v once.
template <class T, bool amsgrad, bool decoupled>
struct AdamStep {
  using R = Compute<T>;
  T* p;
  const T* g;
  R *m, *v, *vmax;
  R gradient_scale;              // negative to maximise
  R decay;                       // 1 - lr * weight_decay, or weight_decay if it is not decoupled
  bool from_gradient;            // b1 < 1/2: lerp from its nearer end, as torch does
  R weight1;                     // 1 - b1, or -b1 from the gradient's end
  R beta2, weight2;              // b2, 1 - b2
  R step_size, inverse_c2, eps;  // lr / (1 - b1^t), 1 / sqrt(1 - b2^t)

  HD void operator()(int64_t i) const {
    R grad = R(g[i]) * gradient_scale;
    if constexpr (!decoupled) grad += decay * R(p[i]);
    const R mean = (from_gradient ? grad : m[i]) + weight1 * (grad - m[i]);
    const R square = beta2 * v[i] + weight2 * grad * grad;
    m[i] = mean;
    v[i] = square;
    R largest = square;
    if constexpr (amsgrad) {
      // torch.maximum: NaN wins.
      largest = vmax[i] > square || vmax[i] != vmax[i] ? vmax[i] : square;
      vmax[i] = largest;
    }
    const R denom = math::sqrt(largest) * inverse_c2 + eps;
    const R weight = decoupled ? R(p[i]) * decay : R(p[i]);
    p[i] = T(weight - step_size * mean / denom);
  }
};

void AdamWRule::list_options(Options& options, OptionFields& fields) {
  fields("lr", options.lr);
  fields("beta1", options.beta1);
  fields("beta2", options.beta2);
  fields("eps", options.eps);
  fields("weight_decay", options.weight_decay);
  fields("amsgrad", options.amsgrad);
  fields("maximize", options.maximize);
}

void AdamWRule::list_state(State& state, const ParameterSpec& parameter, const Options& options,
                           StateFields& fields) {
  const DType dtype = state_dtype(parameter.dtype);
  fields("exp_avg", state.exp_avg, parameter.shape, dtype);
  fields("exp_avg_sq", state.exp_avg_sq, parameter.shape, dtype);
  if (options.amsgrad) fields("max_exp_avg_sq", state.max_exp_avg_sq, parameter.shape, dtype);
  fields("step", state.step);
}

void AdamWRule::validate(const Options& options) {
  check_not_negative(name, "lr", options.lr);
  check_beta(name, "beta1", options.beta1);
  check_beta(name, "beta2", options.beta2);
  check_not_negative(name, "eps", options.eps);
  check_not_negative(name, "weight_decay", options.weight_decay);
}

void AdamWRule::update(const Update& u, State& state, const Options& options) {
  adam_update(u, state, options, true);
}

void adam_update(const Update& u, AdamWRule::State& state, const AdamWRule::Options& o,
                 bool decoupled_decay) {
  const double t = double(++state.step);
  const double c1 = 1.0 - std::pow(o.beta1, t), c2 = 1.0 - std::pow(o.beta2, t);
  const bool from_gradient = o.beta1 < 0.5;
  dispatch_float(u.parameter.dtype(), "adam", [&]<class T>() {
    using R = Compute<T>;
    const auto launch = [&]<bool amsgrad, bool decoupled>() {
      launch_elements(
          u.parameter.device(), u.parameter.numel(),
          AdamStep<T, amsgrad, decoupled>{
              u.parameter.data<T>(), u.gradient.data<T>(), state.exp_avg.data<R>(),
              state.exp_avg_sq.data<R>(), amsgrad ? state.max_exp_avg_sq.data<R>() : nullptr,
              R(o.maximize ? -u.gradient_scale : u.gradient_scale),
              R(decoupled ? 1.0 - o.lr * o.weight_decay : o.weight_decay), from_gradient,
              R(from_gradient ? -o.beta1 : 1.0 - o.beta1), R(o.beta2), R(1.0 - o.beta2),
              R(o.lr / c1), R(1.0 / std::sqrt(c2)), R(o.eps)});
    };
    if (decoupled_decay)
      o.amsgrad ? launch.template operator()<true, true>()
                : launch.template operator()<false, true>();
    else
      o.amsgrad ? launch.template operator()<true, false>()
                : launch.template operator()<false, false>();
  });
}

}  // namespace minim::optim
