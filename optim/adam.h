#pragma once

#include <string_view>

#include "optim/adamw.h"

namespace minim::optim {

// Adam (Kingma & Ba, "Adam: a method for stochastic optimization", 2015), in the order of
// operations of torch.optim.Adam. As AdamW, except that weight decay is L2: weight_decay * p is
// added to the gradient, and so is normalised away together with it.
struct AdamRule {
  static constexpr std::string_view name = "adam";
  static constexpr bool batches = true;

  struct Options {
    double lr = 1e-3;
    double beta1 = 0.9, beta2 = 0.999;
    double eps = 1e-8;
    double weight_decay = 0.0;
    bool amsgrad = false;
    bool maximize = false;
  };
  using State = AdamWRule::State;

  static void list_options(Options& options, OptionFields& fields);
  static void list_state(State& state, const ParameterSpec& parameter, const Options& options,
                         StateFields& fields);
  static void validate(const Options& options);
  static void update(const Update& u, State& state, const Options& options);
};
using Adam = Optimizer<AdamRule>;

}  // namespace minim::optim
