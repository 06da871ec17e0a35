#include "optim/adafactor_torch.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "optim/adafactor_update.h"
#include "optim/option_checks.h"

namespace minim::optim {

void AdafactorTorchRule::list_options(Options& options, OptionFields& fields) {
  fields("lr", options.lr);
  fields("beta2_decay", options.beta2_decay);
  fields("eps1", options.eps1);
  fields("eps2", options.eps2);
  fields("d", options.d);
  fields("weight_decay", options.weight_decay);
  fields("maximize", options.maximize);
}

void AdafactorTorchRule::list_state(State& state, const ParameterSpec& parameter, const Options&,
                                    StateFields& fields) {
  const DType dtype = state_dtype(parameter.dtype);
  const int rank = parameter.shape.rank();
  if (is_factored(parameter.shape)) {
    Shape rows = parameter.shape, columns = parameter.shape;
    rows[rank - 1] = 1;
    columns[rank - 2] = 1;
    fields("row_var", state.row_var, rows, dtype);
    fields("col_var", state.col_var, columns, dtype);
  } else {
    fields("variance", state.variance, parameter.shape, dtype);
  }
  fields("step", state.step);
}

void AdafactorTorchRule::validate(const Options& options) {
  check_not_negative(name, "lr", options.lr);
  check(options.beta2_decay <= 0 && std::isfinite(options.beta2_decay),
        "{}: beta2_decay is {}, must be finite and not positive", name, options.beta2_decay);
  if (options.eps1) check_not_negative(name, "eps1", *options.eps1);
  check_not_negative(name, "eps2", options.eps2);
  check(options.d >= 1 && std::isfinite(options.d), "{}: d is {}, must be finite and at least 1",
        name, options.d);
  check_not_negative(name, "weight_decay", options.weight_decay);
}

void AdafactorTorchRule::update(const Update& u, State& state, const Options& o) {
  const double epsilon = u.parameter.dtype() == DType::f64
                             ? std::numeric_limits<double>::epsilon()
                             : double(std::numeric_limits<float>::epsilon());
  const double eps1 = o.eps1.value_or(epsilon);
  // 1 / sqrt(max(V, eps1^2)) is min(1 / sqrt(V), 1 / eps1), whose terms never leave the range.
  adafactor_update(u, {state.row_var, state.col_var, state.variance, Tensor(), Tensor()},
                   {
                       .time = {.step = double(++state.step),
                                .decay_rate = o.beta2_decay,
                                .most = o.lr,
                                .falls = true},
                       .least_scale = o.eps2,
                       .decay = o.lr * o.weight_decay,
                       .decay_times_rate = 0.0,
                       .least_mean = eps1,
                       .largest_factor = std::min(1.0 / eps1, std::numeric_limits<double>::max()),
                       .threshold = o.d,
                       .negate = o.maximize,
                   });
}

}  // namespace minim::optim
