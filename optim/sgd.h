#pragma once

#include <cstdint>
#include <string_view>

#include "optim/optimizer.h"

namespace minim::optim {

// Stochastic gradient descent with momentum, in the order of operations of torch.optim.SGD:
//
//   g      <- g + weight_decay * p
//   buffer <- g at first, then momentum * buffer + (1 - dampening) * g
//   p      <- p - lr * buffer, or with nesterov p - lr * (g + momentum * buffer)
struct SgdRule {
  static constexpr std::string_view name = "sgd";
  static constexpr bool batches = true;

  struct Options {
    double lr = 1e-3;
    double momentum = 0.0;
    double dampening = 0.0;
    double weight_decay = 0.0;  // L2
    bool nesterov = false;      // look ahead (Sutskever et al., 2013); needs momentum
    bool maximize = false;
  };
  struct State {
    Tensor momentum_buffer;  // with momentum, in f32, or f64 for an f64 parameter
    int64_t step = 0;
  };

  static void list_options(Options& options, OptionFields& fields);
  static void list_state(State& state, const ParameterSpec& parameter, const Options& options,
                         StateFields& fields);
  static void validate(const Options& options);
  static void update(const Update& u, State& state, const Options& options);
};
using Sgd = Optimizer<SgdRule>;

}  // namespace minim::optim
