#include "optim/sgd.h"

#include "core/launch.h"
#include "optim/option_checks.h"

namespace minim::optim {

// One element of one step.
template <class T, bool with_momentum>
struct SgdStep {
  using R = Compute<T>;
  T* p;
  const T* g;
  R* buffer;
  R gradient_scale, weight_decay;  // the scale is negative to maximise
  R keep, add;                     // momentum and 1 - dampening; 0 and 1 at the first step
  R from_gradient, from_buffer;    // 1 and momentum with nesterov, else 0 and 1
  R lr;

  HD void operator()(int64_t i) const {
    R grad = R(g[i]) * gradient_scale + weight_decay * R(p[i]);
    if constexpr (with_momentum) {
      const R average = keep * buffer[i] + add * grad;
      buffer[i] = average;
      grad = from_gradient * grad + from_buffer * average;
    }
    p[i] = T(R(p[i]) - lr * grad);
  }
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
      launch_elements(u.parameter.device(), u.parameter.numel(),
                      SgdStep<T, with_momentum>{
                          u.parameter.data<T>(), u.gradient.data<T>(),
                          with_momentum ? state.momentum_buffer.data<R>() : nullptr,
                          R(o.maximize ? -u.gradient_scale : u.gradient_scale), R(o.weight_decay),
                          R(first ? 0.0 : o.momentum), R(first ? 1.0 : 1.0 - o.dampening),
                          R(o.nesterov ? 1.0 : 0.0), R(o.nesterov ? o.momentum : 1.0), R(o.lr)});
    };
    o.momentum != 0.0 ? launch.template operator()<true>() : launch.template operator()<false>();
  });
}

}  // namespace minim::optim
