#include "train/early_stopping.h"

#include <cmath>

#include "core/error.h"

namespace minim::train {

EarlyStoppingCallback::EarlyStoppingCallback(const TrainingArguments& arguments, int64_t patience,
                                             double threshold)
    : arguments_(arguments), patience_(patience), threshold_(threshold) {
  check(arguments.eval_strategy != IntervalStrategy::no,
        "early stopping: needs an eval_strategy other than no");
  check(!arguments.best_metric_name().empty(),
        "early stopping: needs a metric_for_best_model, such as loss or accuracy");
  check(patience >= 1, "early_stopping_patience: must be at least 1, is {}", patience);
  check(threshold >= 0 && std::isfinite(threshold),
        "early_stopping_threshold: must be at least 0 and finite, is {}", threshold);
}

void EarlyStoppingCallback::on_evaluate(const TrainerState& state, const Metrics& metrics) {
  const double value = arguments_.best_metric_of(metrics);
  // The state's best is that of the evaluations before this one.
  const bool improves = state.best_metric ? arguments_.is_better(value, *state.best_metric) &&
                                                std::abs(value - *state.best_metric) > threshold_
                                          : !std::isnan(value);
  counter_ = improves ? 0 : counter_ + 1;
}

void EarlyStoppingCallback::control(const TrainerState&, TrainerControl& control) {
  control.should_training_stop = control.should_training_stop || counter_ >= patience_;
}

Metrics EarlyStoppingCallback::attributes() const {
  return {{"early_stopping_patience_counter", double(counter_)}};
}

void EarlyStoppingCallback::restore(const Metrics& attributes) {
  for (const auto& [name, value] : attributes)
    if (name == "early_stopping_patience_counter") counter_ = int64_t(value);
}

}  // namespace minim::train
