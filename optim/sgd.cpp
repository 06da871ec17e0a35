#include "optim/sgd.h"

#include "optim/option_checks.h"
#include "optim/step_elements.h"

namespace minim::optim {

// One weight of one step.
template <class R, bool with_momentum>
struct SgdFormula {
  static constexpr int states = with_momentum ? 1 : 0;  // the average

  R weight_decay;
  R keep, add;                   // momentum and 1 - dampening; 0 and 1 at the first step
  R from_gradient, from_buffer;  // 1 and momentum with nesterov, else 0 and 1
  R lr;
  int64_t step;

  HD R operator()(R p, R g, [[maybe_unused]] R* state) const {
    R grad = g + weight_decay * p;
    if constexpr (with_momentum) {
      const R average = keep * state[0] + add * grad;
      state[0] = average;
      grad = from_gradient * grad + from_buffer * average;
    }
    return p - lr * grad;
  }
  HD SgdFormula earlier(int64_t steps) const {
    SgdFormula formula = *this;
    if (step - steps == 1) {
      formula.keep = R(0);
      formula.add = R(1);
    }
    return formula;
  }
  bool operator==(const SgdFormula&) const = default;
};

void SgdRule::list_options(Options& options, OptionFields& fields) {
  fields("lr", options.lr);
  fields("momentum", options.momentum);
  fields("dampening", options.dampening);
  fields("weight_decay", options.weight_decay);
  fields("nesterov", options.nesterov);
  fields("maximize", options.maximize);
}

void SgdRule::list_state(State& state, const ParameterSpec& parameter, const Options& options,
                         StateFields& fields) {
  if (options.momentum != 0.0)
    fields("momentum_buffer", state.momentum_buffer, parameter.shape, state_dtype(parameter.dtype));
  fields("step", state.step);
}

void SgdRule::validate(const Options& options) {
  check_not_negative(name, "lr", options.lr);
  check_not_negative(name, "momentum", options.momentum);
  check_not_negative(name, "weight_decay", options.weight_decay);
  check(options.dampening <= 1 && options.dampening >= 0,
        "{}: dampening is {}, must be at least 0 and at most 1", name, options.dampening);
  check(!options.nesterov || (options.momentum > 0 && options.dampening == 0),
        "{}: nesterov needs a momentum above 0 and no dampening, got {} and {}", name,
        options.momentum, options.dampening);
  check(options.dampening == 0 || options.momentum > 0,
        "{}: dampening is {} without momentum, which it dampens", name, options.dampening);
}

void SgdRule::update(const Update& u, State& state, const Options& o) {
  const bool first = ++state.step == 1;
  dispatch_float(u.parameter.dtype(), name, [&]<class T>() {
    using R = Compute<T>;
    const auto launch = [&]<bool with_momentum>() {
      const SgdFormula<R, with_momentum> formula{R(o.weight_decay),
                                                 R(first ? 0.0 : o.momentum),
                                                 R(first ? 1.0 : 1.0 - o.dampening),
                                                 R(o.nesterov ? 1.0 : 0.0),
                                                 R(o.nesterov ? o.momentum : 1.0),
                                                 R(o.lr),
                                                 state.step};
      const double scale = o.maximize ? -u.gradient_scale : u.gradient_scale;
      if constexpr (with_momentum)
        step_elements<T>(u, scale, formula, {&state.momentum_buffer});
      else
        step_elements<T>(u, scale, formula, {});
    };
    o.momentum != 0.0 ? launch.template operator()<true>() : launch.template operator()<false>();
  });
}

}  // namespace minim::optim
