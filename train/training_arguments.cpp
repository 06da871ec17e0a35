#include "train/training_arguments.h"

#include <cmath>

#include "core/error.h"
#include "core/printable.h"
#include "train/scheduler_kwargs.h"

namespace minim::train {

namespace {

// A ratio is rounded as transformers does.
int64_t updates_of(double steps, int64_t max_steps) {
  return int64_t(steps < 1 ? std::ceil(steps * double(max_steps)) : steps);
}

}  // namespace

std::string_view name_of(IntervalStrategy strategy) {
  return strategy == IntervalStrategy::no      ? "no"
         : strategy == IntervalStrategy::steps ? "steps"
         : strategy == IntervalStrategy::epoch ? "epoch"
                                               : "best";
}

IntervalStrategy parse_interval_strategy(std::string_view name) {
  for (const IntervalStrategy strategy : {IntervalStrategy::no, IntervalStrategy::steps,
                                          IntervalStrategy::epoch, IntervalStrategy::best})
    if (name_of(strategy) == name) return strategy;
  fail("strategy: there is no {}; there are no, steps, epoch and, for save_strategy, best",
       printable(name));
}

void TrainingArguments::validate() const {
  const auto at_least = [](const char* name, auto value, auto least) {
    check(value >= least, "{}: must be at least {}, is {}", name, least, value);
  };
  at_least("per_device_train_batch_size", per_device_train_batch_size, int64_t(1));
  at_least("per_device_eval_batch_size", per_device_eval_batch_size, int64_t(1));
  at_least("gradient_accumulation_steps", gradient_accumulation_steps, int64_t(1));
  at_least("eval_delay", eval_delay, 0.0);
  at_least("learning_rate", learning_rate, 0.0);
  at_least("warmup_steps", warmup_steps, 0.0);
  at_least("max_grad_norm", max_grad_norm, 0.0);
  at_least("save_total_limit", save_total_limit.value_or(0), int64_t(0));
  at_least("non_finite_patience", non_finite_patience, int64_t(0));
  at_least("neftune_noise_alpha", neftune_noise_alpha.value_or(0), 0.0);
  check(bf16 + fp16 + (precision != Precision::fp32) <= 1,
        "precision: is {} with bf16 {} and fp16 {}; give one of them", name_of(precision), bf16,
        fp16);
  check(!bf16_full_eval || !fp16_full_eval,
        "bf16_full_eval, fp16_full_eval: evaluation can be in one of them");
  const auto finite = [](const char* name, double value) {
    check(std::isfinite(value), "{}: must be finite, is {}", name, value);
  };
  finite("learning_rate", learning_rate);
  finite("warmup_steps", warmup_steps);
  finite("max_grad_norm", max_grad_norm);
  finite("num_train_epochs", num_train_epochs);
  finite("neftune_noise_alpha", neftune_noise_alpha.value_or(0));
  for (const double weight : class_weights) {
    finite("class_weights", weight);
    at_least("class_weights", weight, 0.0);
  }
  check(warmup_ratio >= 0 && warmup_ratio <= 1, "warmup_ratio: must lie between 0 and 1, is {}",
        warmup_ratio);
  check(label_smoothing_factor >= 0 && label_smoothing_factor <= 1,
        "label_smoothing_factor: must lie between 0 and 1, is {}", label_smoothing_factor);
  check(max_steps > 0 || num_train_epochs > 0,
        "num_train_epochs: must be above 0 unless max_steps is, is {}", num_train_epochs);
  optim::ScheduleOptions kwargs;
  read_scheduler_kwargs(lr_scheduler_kwargs, kwargs);
  const auto updates_or_ratio = [](const char* name, double steps) {
    const bool whole = steps == std::floor(steps) && steps < 0x1p53;
    check(steps > 0 && (steps < 1 || whole),
          "{}: must be a whole number of updates or a ratio between 0 and 1, is {}", name, steps);
  };
  updates_or_ratio("logging_steps", logging_steps);
  updates_or_ratio("eval_steps", eval_steps.value_or(1));
  updates_or_ratio("save_steps", save_steps);
  const bool saves_best = save_strategy == IntervalStrategy::best;
  check(eval_strategy != IntervalStrategy::best && logging_strategy != IntervalStrategy::best,
        "{}: must be no, steps or epoch, is best",
        eval_strategy == IntervalStrategy::best ? "eval_strategy" : "logging_strategy");
  check(!saves_best || eval_strategy != IntervalStrategy::no,
        "save_strategy: is best, which needs an eval_strategy other than no");
  if (!load_best_model_at_end) {
    check(metric_for_best_model.empty() || eval_strategy != IntervalStrategy::no,
          "metric_for_best_model: is {}, but eval_strategy is no", metric_for_best_model);
    return;
  }
  check(eval_strategy != IntervalStrategy::no,
        "load_best_model_at_end: needs an eval_strategy other than no");
  if (saves_best) return;
  check(save_strategy == eval_strategy,
        "load_best_model_at_end: save_strategy must be that of evaluation, {}, or best, is {}",
        name_of(eval_strategy), name_of(save_strategy));
  // Ratios are compared when the number of updates is known.
  const double evaluates = eval_steps.value_or(logging_steps);
  check(eval_strategy != IntervalStrategy::steps || save_steps < 1 || evaluates < 1 ||
            int64_t(save_steps) % int64_t(evaluates) == 0,
        "load_best_model_at_end: save_steps must be a multiple of the {} eval_steps, is {}",
        evaluates, save_steps);
}

Precision TrainingArguments::mixed_precision() const {
  return bf16 ? Precision::bf16 : fp16 ? Precision::fp16 : precision;
}

std::optional<DType> TrainingArguments::autocast_dtype(Device device) const {
  return autocast_dtype_of(mixed_precision(), device);
}

std::optional<DType> TrainingArguments::eval_autocast_dtype(Device device) const {
  if (bf16_full_eval) return DType::bf16;
  return fp16_full_eval ? DType::f16 : autocast_dtype(device);
}

optim::OptimizerArguments TrainingArguments::optimizer_arguments() const {
  return {.learning_rate = learning_rate,
          .adam_beta1 = adam_beta1,
          .adam_beta2 = adam_beta2,
          .adam_epsilon = adam_epsilon,
          .weight_decay = weight_decay,
          .optim_args = optim_args};
}

optim::ScheduleOptions TrainingArguments::schedule_options(int64_t max_steps) const {
  optim::ScheduleOptions options{.lr = learning_rate};
  read_scheduler_kwargs(lr_scheduler_kwargs, options);
  if (lr_scheduler_type == "constant") return options;
  double warmup = warmup_steps;
  if (warmup == 0) warmup = warmup_ratio * double(max_steps);
  if (warmup_steps < 1 && warmup_steps > 0) warmup = warmup_steps * double(max_steps);
  options.warmup_steps = int64_t(std::ceil(warmup));
  if (lr_scheduler_type != "constant_with_warmup" && lr_scheduler_type != "inverse_sqrt")
    options.total_steps = max_steps;
  return options;
}

int64_t TrainingArguments::logging_interval(int64_t max_steps) const {
  return updates_of(logging_steps, max_steps);
}

int64_t TrainingArguments::eval_interval(int64_t max_steps) const {
  return updates_of(eval_steps.value_or(logging_steps), max_steps);
}

int64_t TrainingArguments::save_interval(int64_t max_steps) const {
  return updates_of(save_steps, max_steps);
}

std::string TrainingArguments::best_metric_name() const {
  std::string name = metric_for_best_model;
  const bool compares = load_best_model_at_end || save_strategy == IntervalStrategy::best;
  if (name.empty() && compares) name = "loss";
  return name.empty() || name.starts_with("eval_") ? name : "eval_" + name;
}

bool TrainingArguments::is_better(double value, double than) const {
  return greater_is_better.value_or(!best_metric_name().ends_with("loss")) ? value > than
                                                                           : value < than;
}

double TrainingArguments::best_metric_of(const Metrics& metrics) const {
  const std::string name = best_metric_name();
  std::string known;
  for (const auto& [key, value] : metrics) {
    if (key == name) return value;
    if (key.starts_with("eval_")) known += (known.empty() ? "" : ", ") + key;
  }
  fail("metric_for_best_model: there is no {}; there are {}", printable(name), known);
}

}  // namespace minim::train
