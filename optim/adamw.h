#pragma once

#include <cstdint>
#include <string_view>

#include "optim/optimizer.h"

namespace minim::optim {

// Adam with decoupled weight decay (Loshchilov & Hutter, "Decoupled weight decay regularization",
// 2019), in the order of operations of torch.optim.AdamW. With step t, gradient g, beta b1 and b2:
//
//   p     <- p * (1 - lr * weight_decay)
//   m     <- m + (1 - b1) * (g - m)             exp_avg, the mean of recent gradients
//   v     <- b2 * v + (1 - b2) * g * g          exp_avg_sq, the mean of their squares
//   denom <- sqrt(v) / sqrt(1 - b2^t) + eps     v or, with amsgrad, the largest v so far
//   p     <- p - lr / (1 - b1^t) * m / denom
struct AdamWRule {
  static constexpr std::string_view name = "adamw";
  static constexpr bool batches = true;

  struct Options {
    double lr = 1e-3;
    double beta1 = 0.9, beta2 = 0.999;
    double eps = 1e-8;
    double weight_decay = 1e-2;
    bool amsgrad = false;   // never let the denominator shrink (Reddi et al., 2018)
    bool maximize = false;  // step along the gradient, not against it
  };
  // Both moments have the parameter's shape, in f32, or f64 for an f64 parameter.
  struct State {
    Tensor exp_avg, exp_avg_sq;
    Tensor max_exp_avg_sq;  // with amsgrad
    int64_t step = 0;       // updates of this parameter
  };

  static void list_options(Options& options, OptionFields& fields);
  static void list_state(State& state, const ParameterSpec& parameter, const Options& options,
                         StateFields& fields);
  static void validate(const Options& options);
  static void update(const Update& u, State& state, const Options& options);
};
using AdamW = Optimizer<AdamWRule>;

}  // namespace minim::optim
