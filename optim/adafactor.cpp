#include "optim/adafactor.h"

#include <algorithm>
#include <cmath>

#include "optim/adafactor_update.h"
#include "optim/option_checks.h"

namespace minim::optim {

void AdafactorRule::list_options(Options& options, OptionFields& fields) {
  fields("lr", options.lr);
  fields("eps1", options.eps1);
  fields("eps2", options.eps2);
  fields("clip_threshold", options.clip_threshold);
  fields("decay_rate", options.decay_rate);
  fields("beta1", options.beta1);
  fields("weight_decay", options.weight_decay);
  fields("scale_parameter", options.scale_parameter);
  fields("relative_step", options.relative_step);
  fields("warmup_init", options.warmup_init);
}

void AdafactorRule::list_state(State& state, const ParameterSpec& parameter, const Options& options,
                               StateFields& fields) {
  const DType dtype = state_dtype(parameter.dtype);
  const int rank = parameter.shape.rank();
  if (is_factored(parameter.shape)) {
    Shape rows = parameter.shape, columns = parameter.shape;
    rows.erase(rank - 1);
    columns.erase(rank - 2);
    fields("exp_avg_sq_row", state.exp_avg_sq_row, rows, dtype);
    fields("exp_avg_sq_col", state.exp_avg_sq_col, columns, dtype);
  } else {
    fields("exp_avg_sq", state.exp_avg_sq, parameter.shape, dtype);
  }
  if (options.beta1) fields("exp_avg", state.exp_avg, parameter.shape, dtype);
  fields("step", state.step);
  fields("RMS", state.rms);
}

void AdafactorRule::validate(const Options& options) {
  if (options.lr) check_not_negative(name, "lr", *options.lr);
  check(!options.lr || !options.relative_step,
        "{}: lr is {}, but relative_step finds the rate itself; leave lr out, or set relative_step "
        "to false",
        name, options.lr.value_or(0));
  check(options.lr || options.relative_step,
        "{}: there is no rate: lr is left out and relative_step is false; give one of them", name);
  check(options.relative_step || !options.warmup_init,
        "{}: warmup_init is a start of relative_step, which is false", name);
  check_not_negative(name, "eps1", options.eps1);
  check_not_negative(name, "eps2", options.eps2);
  check(options.clip_threshold > 0 && std::isfinite(options.clip_threshold),
        "{}: clip_threshold is {}, must be finite and positive", name, options.clip_threshold);
  check(options.decay_rate <= 0 && std::isfinite(options.decay_rate),
        "{}: decay_rate is {}, must be finite and not positive", name, options.decay_rate);
  if (options.beta1) check_beta(name, "beta1", *options.beta1);
  check_not_negative(name, "weight_decay", options.weight_decay);
}

namespace {

AdafactorTime time_of(int64_t step, const AdafactorRule::Options& o) {
  return {.step = double(step),
          .decay_rate = o.decay_rate,
          .most = o.lr.value_or(1e-2),
          .growth = o.warmup_init ? 1e-6 : 0.0,
          .falls = o.relative_step};
}

}  // namespace

double AdafactorRule::found_rate(const State& state, const Options& o) {
  const double rate = time_of(state.step, o).rate();
  return o.scale_parameter ? rate * std::max(o.eps2, state.rms) : rate;
}

void AdafactorRule::update(const Update& u, State& state, const Options& o) {
  AdafactorNumbers numbers{
      .time = time_of(++state.step, o),
      .least_scale = {},
      .decay = 0.0,
      .decay_times_rate = o.weight_decay,
      .added = o.eps1,
      .threshold = o.clip_threshold,
      .beta1 = o.beta1.value_or(0.0),
  };
  if (o.scale_parameter) numbers.least_scale = o.eps2;
  if (u.launches != nullptr && !state.rms_there.defined()) {
    const memory::Scope scope(memory::Category::workspace);
    state.rms_there = Tensor::zeros({1}, DType::f64, u.parameter.device());
  }
  state.rms = adafactor_update(u,
                               {state.exp_avg_sq_row, state.exp_avg_sq_col, state.exp_avg_sq,
                                state.exp_avg, state.rms_there},
                               numbers);
}

void AdafactorRule::fetch(State& state) {
  if (state.rms_there.defined()) state.rms = state.rms_there.item();
}

}  // namespace minim::optim
