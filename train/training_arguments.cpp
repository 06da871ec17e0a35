#include "train/training_arguments.h"

#include <cmath>

#include "core/error.h"

namespace minim::train {

void TrainingArguments::validate() const {
  const auto at_least = [](const char* name, auto value, auto least) {
    check(value >= least, "{}: must be at least {}, is {}", name, least, value);
  };
  at_least("per_device_train_batch_size", per_device_train_batch_size, int64_t(1));
  at_least("per_device_eval_batch_size", per_device_eval_batch_size, int64_t(1));
  at_least("gradient_accumulation_steps", gradient_accumulation_steps, int64_t(1));
  at_least("logging_steps", logging_steps, int64_t(1));
  at_least("eval_steps", eval_steps.value_or(1), int64_t(1));
  at_least("learning_rate", learning_rate, 0.0);
  at_least("warmup_steps", warmup_steps, 0.0);
  at_least("max_grad_norm", max_grad_norm, 0.0);
  const auto finite = [](const char* name, double value) {
    check(std::isfinite(value), "{}: must be finite, is {}", name, value);
  };
  finite("learning_rate", learning_rate);
  finite("warmup_steps", warmup_steps);
  finite("max_grad_norm", max_grad_norm);
  finite("num_train_epochs", num_train_epochs);
  check(warmup_ratio >= 0 && warmup_ratio <= 1, "warmup_ratio: must lie between 0 and 1, is {}",
        warmup_ratio);
  check(max_steps > 0 || num_train_epochs > 0,
        "num_train_epochs: must be above 0 unless max_steps is, is {}", num_train_epochs);
}

}  // namespace minim::train
