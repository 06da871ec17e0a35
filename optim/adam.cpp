#include "optim/adam.h"

#include "optim/adam_update.h"
#include "optim/option_checks.h"

namespace minim::optim {

namespace {

AdamWRule::Options as_adamw(const AdamRule::Options& o) {
  return {o.lr, o.beta1, o.beta2, o.eps, o.weight_decay, o.amsgrad, o.maximize};
}

}  // namespace

void AdamRule::list_options(Options& options, OptionFields& fields) {
  fields("lr", options.lr);
  fields("beta1", options.beta1);
  fields("beta2", options.beta2);
  fields("eps", options.eps);
  fields("weight_decay", options.weight_decay);
  fields("amsgrad", options.amsgrad);
  fields("maximize", options.maximize);
}

void AdamRule::list_state(State& state, const ParameterSpec& parameter, const Options& options,
                          StateFields& fields) {
  AdamWRule::list_state(state, parameter, as_adamw(options), fields);
}

void AdamRule::validate(const Options& options) {
  check_not_negative(name, "lr", options.lr);
  check_beta(name, "beta1", options.beta1);
  check_beta(name, "beta2", options.beta2);
  check_not_negative(name, "eps", options.eps);
  check_not_negative(name, "weight_decay", options.weight_decay);
}

void AdamRule::update(const Update& u, State& state, const Options& options) {
  adam_update(u, state, as_adamw(options), false);
}

}  // namespace minim::optim
