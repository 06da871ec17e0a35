#pragma once

#include "core/launch.h"
#include "optim/optimizer.h"

// Lion (Chen et al., "Symbolic discovery of optimization algorithms", 2023): steps of one size
// along the sign of the momentum, the one number that it keeps of each weight.
//   p <- p * (1 - lr * weight_decay) - lr * sign(beta1 * m + (1 - beta1) * g)
//   m <- beta2 * m + (1 - beta2) * g
namespace custom {
using namespace minim;
template <class T, class R = Compute<T>>
struct LionStep {
  T* p;
  const T* g;
  R *m, scale, beta1, beta2, lr, remaining;

  HD void operator()(int64_t i) const {
    const R grad = R(g[i]) * scale;
    const R direction = beta1 * m[i] + (R(1) - beta1) * grad;
    m[i] = beta2 * m[i] + (R(1) - beta2) * grad;
    p[i] = T(R(p[i]) * remaining - lr * R((direction > R(0)) - (direction < R(0))));
  }
};

struct LionRule {
  static constexpr std::string_view name = "lion";
  struct Options {
    double lr = 1e-4, beta1 = 0.9, beta2 = 0.99, weight_decay = 0.0;
  };
  struct State {
    Tensor exp_avg;
  };
  static void list_options(Options& o, optim::OptionFields& fields) {
    fields("lr", o.lr), fields("beta1", o.beta1), fields("beta2", o.beta2);
    fields("weight_decay", o.weight_decay);
  }
  static void list_state(State& state, const optim::ParameterSpec& p, const Options&,
                         optim::StateFields& fields) {
    fields("exp_avg", state.exp_avg, p.shape, optim::state_dtype(p.dtype));
  }
  static void validate(const Options& o) {
    check(o.lr >= 0 && o.beta1 >= 0 && o.beta1 < 1 && o.beta2 >= 0 && o.beta2 < 1,
          "lion: lr is {}, betas {} and {}; none may be negative, nor a beta 1", o.lr, o.beta1,
          o.beta2);
  }
  static void update(const optim::Update& u, State& state, const Options& o) {
    dispatch_float(
        u.parameter.dtype(), name, [&]<class T, class R = Compute<T>>() {
          launch_elements(u.parameter.device(), u.parameter.numel(),
                          LionStep<T>{u.parameter.data<T>(), u.gradient.data<T>(),
                                      state.exp_avg.data<R>(), R(u.gradient_scale), R(o.beta1),
                                      R(o.beta2), R(o.lr), R(1.0 - o.lr * o.weight_decay)});
        });
  }
};
using Lion = optim::Optimizer<LionRule>;

}  // namespace custom
