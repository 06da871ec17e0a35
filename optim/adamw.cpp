#include "optim/adamw.h"

#include "core/math.h"
#include "optim/adam_corrections.h"
#include "optim/adam_update.h"
#include "optim/option_checks.h"
#include "optim/step_elements.h"

namespace minim::optim {

// One weight of one step.
template <class R, bool amsgrad, bool decoupled>
struct AdamFormula {
  static constexpr int states = amsgrad ? 3 : 2;  // m, v and the largest v

  R decay;                       // 1 - lr * weight_decay, or weight_decay if it is not decoupled
  R weight1;                     // 1 - b1, or -b1 from the gradient's end
  R beta2, weight2;              // b2, 1 - b2
  R step_size, inverse_c2, eps;  // lr / (1 - b1^t), 1 / sqrt(1 - b2^t)
  bool from_gradient;            // b1 < 1/2: lerp from its nearer end, as torch does
  AdamCorrections corrections;   // where step_size and inverse_c2 come from

  HD R operator()(R p, R grad, R* state) const {
    if constexpr (!decoupled) grad += decay * p;
    const R mean = (from_gradient ? grad : state[0]) + weight1 * (grad - state[0]);
    const R square = beta2 * state[1] + weight2 * grad * grad;
    state[0] = mean;
    state[1] = square;
    R largest = square;
    if constexpr (amsgrad) {
      // torch.maximum: NaN wins.
      largest = state[2] > square || state[2] != state[2] ? state[2] : square;
      state[2] = largest;
    }
    const R denom = math::sqrt(largest) * inverse_c2 + eps;
    const R weight = decoupled ? p * decay : p;
    return weight - step_size * mean / denom;
  }
  HD AdamFormula earlier(int64_t steps) const {
    AdamFormula formula = *this;
    formula.corrections = corrections.earlier(steps);
    formula.step_size = R(formula.corrections.step_size());
    formula.inverse_c2 = R(formula.corrections.inverse_c2());
    return formula;
  }
  bool operator==(const AdamFormula&) const = default;
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
  const AdamCorrections corrections{o.lr, o.beta1, o.beta2, ++state.step};
  const bool from_gradient = o.beta1 < 0.5;
  dispatch_float(u.parameter.dtype(), "adam", [&]<class T>() {
    using R = Compute<T>;
    const auto launch = [&]<bool amsgrad, bool decoupled>() {
      const AdamFormula<R, amsgrad, decoupled> formula{
          R(decoupled ? 1.0 - o.lr * o.weight_decay : o.weight_decay),
          R(from_gradient ? -o.beta1 : 1.0 - o.beta1),
          R(o.beta2),
          R(1.0 - o.beta2),
          R(corrections.step_size()),
          R(corrections.inverse_c2()),
          R(o.eps),
          from_gradient,
          corrections};
      const double scale = o.maximize ? -u.gradient_scale : u.gradient_scale;
      if constexpr (amsgrad)
        step_elements<T>(u, scale, formula,
                         {&state.exp_avg, &state.exp_avg_sq, &state.max_exp_avg_sq});
      else
        step_elements<T>(u, scale, formula, {&state.exp_avg, &state.exp_avg_sq});
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
