#include "optim/plateau.h"

#include <algorithm>
#include <string_view>

#include "optim/option_checks.h"

namespace minim::optim {

ReduceLrOnPlateau::ReduceLrOnPlateau(const PlateauOptions& options)
    : options_(options),
      lr_(options.lr),
      best_(options.greater_is_better ? -std::numeric_limits<double>::infinity()
                                      : std::numeric_limits<double>::infinity()) {
  constexpr std::string_view op = "reduce_lr_on_plateau";
  check_not_negative(op, "lr", options.lr);
  check(options.factor > 0 && options.factor < 1, "{}: factor is {}, must lie between 0 and 1", op,
        options.factor);
  check_not_negative(op, "patience", double(options.patience));
  check_not_negative(op, "threshold", options.threshold);
  check_not_negative(op, "cooldown", double(options.cooldown));
  check_not_negative(op, "min_lr", options.min_lr);
  check_not_negative(op, "eps", options.eps);
}

void ReduceLrOnPlateau::observe(double metric) {
  const bool better = options_.greater_is_better ? metric > best_ * (1.0 + options_.threshold)
                                                 : metric < best_ * (1.0 - options_.threshold);
  if (better) {
    best_ = metric;
    bad_evaluations_ = 0;
  } else {
    ++bad_evaluations_;
  }
  if (cooldown_ > 0) {
    --cooldown_;
    bad_evaluations_ = 0;
  }
  if (bad_evaluations_ <= options_.patience) return;
  const double reduced = std::max(lr_ * options_.factor, options_.min_lr);
  if (lr_ - reduced > options_.eps) lr_ = reduced;
  cooldown_ = options_.cooldown;
  bad_evaluations_ = 0;
}

void ReduceLrOnPlateau::set_state(const State& state) {
  lr_ = state.lr;
  best_ = state.best;
  bad_evaluations_ = state.bad_evaluations;
  cooldown_ = state.cooldown;
}

}  // namespace minim::optim
