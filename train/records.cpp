#include "train/records.h"

#include <cmath>

#include <nlohmann/json.hpp>

#include "train/memory_ledger.h"

namespace minim::train {

namespace {

using nlohmann::json;

json number(double value) {
  if (!std::isfinite(value)) return nullptr;
  if (value == std::floor(value) && std::abs(value) < 0x1p53) return int64_t(value);
  return value;
}

json object_of(const Metrics& metrics) {
  json object = json::object();
  for (const auto& [name, value] : metrics)
    object[name] = number(value);
  return object;
}

std::string text_of(const json& value) {
  return value.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

template <class T>
json optional(const std::optional<T>& value) {
  return value ? json(*value) : json(nullptr);
}

json ledger_json(const MemoryLedger& ledger, const MeasuredMemory& seen) {
  json predicted = json::object(), measured = json::object();
  for (size_t c = 0; c < memory::categories; ++c) {
    const auto category = memory::Category(c);
    const std::string name(memory::name_of(category));
    if (const auto bytes = ledger.predicted(category)) predicted[name] = *bytes;
    measured[name] = {{"current", memory::current(category, ledger.device)},
                      {"peak", seen.peaks[c]}};
  }
  return {{"device", ledger.device.to_string()},
          {"parameters", ledger.parameters},
          {"trained_parameters", ledger.trained_parameters},
          {"optimizer_state_elements", ledger.optimizer_state_elements},
          {"predicted_bytes", predicted},
          {"predicted_peak_bytes", ledger.step ? json(ledger.predicted_peak) : json(nullptr)},
          {"measured_bytes", measured},
          {"measured_peak_bytes", seen.peak}};
}

}  // namespace

std::string metrics_json(const Metrics& metrics) {
  return text_of(object_of(metrics));
}

std::string metrics_line(const Metrics& metrics) {
  return object_of(metrics).dump(-1, ' ', false, json::error_handler_t::replace);
}

std::string training_args_json(const TrainingArguments& a, std::string_view optimizer,
                               const NamedArguments& further) {
  json object = {{"optim", optimizer},
                 {"optim_args", a.optim_args.empty() ? json(nullptr) : json(a.optim_args)},
                 {"adam_beta1", a.adam_beta1},
                 {"adam_beta2", a.adam_beta2},
                 {"adam_epsilon", a.adam_epsilon},
                 {"weight_decay", a.weight_decay},
                 {"per_device_train_batch_size", a.per_device_train_batch_size},
                 {"per_device_eval_batch_size", a.per_device_eval_batch_size},
                 {"num_train_epochs", a.num_train_epochs},
                 {"max_steps", a.max_steps},
                 {"gradient_accumulation_steps", a.gradient_accumulation_steps},
                 {"gradient_checkpointing", a.gradient_checkpointing},
                 {"learning_rate", a.learning_rate},
                 {"lr_scheduler_type", a.lr_scheduler_type},
                 {"lr_scheduler_kwargs",
                  a.lr_scheduler_kwargs.empty() ? json(nullptr) : json(a.lr_scheduler_kwargs)},
                 {"warmup_steps", number(a.warmup_steps)},
                 {"warmup_ratio", a.warmup_ratio},
                 {"max_grad_norm", a.max_grad_norm},
                 {"label_smoothing_factor", number(a.label_smoothing_factor)},
                 {"neftune_noise_alpha", optional(a.neftune_noise_alpha)},
                 {"non_finite_patience", a.non_finite_patience},
                 {"dataloader_drop_last", a.dataloader_drop_last},
                 {"ignore_data_skip", a.ignore_data_skip},
                 {"prediction_loss_only", a.prediction_loss_only},
                 {"precision", name_of(a.precision)},
                 {"bf16", a.bf16},
                 {"fp16", a.fp16},
                 {"bf16_full_eval", a.bf16_full_eval},
                 {"fp16_full_eval", a.fp16_full_eval},
                 {"seed", a.seed},
                 {"data_seed", optional(a.data_seed)},
                 {"eval_strategy", name_of(a.eval_strategy)},
                 {"eval_steps", a.eval_steps ? number(*a.eval_steps) : json(nullptr)},
                 {"eval_delay", number(a.eval_delay)},
                 {"eval_on_start", a.eval_on_start},
                 {"logging_strategy", name_of(a.logging_strategy)},
                 {"logging_first_step", a.logging_first_step},
                 {"logging_steps", number(a.logging_steps)},
                 {"save_strategy", name_of(a.save_strategy)},
                 {"save_steps", number(a.save_steps)},
                 {"save_total_limit", optional(a.save_total_limit)},
                 {"save_only_model", a.save_only_model},
                 {"load_best_model_at_end", a.load_best_model_at_end},
                 {"metric_for_best_model", nullptr},
                 {"greater_is_better", optional(a.greater_is_better)}};
  if (!a.best_metric_name().empty()) object["metric_for_best_model"] = a.best_metric_name();
  object["train_sampling_strategy"] = text::name_of(a.train_sampling_strategy);
  object["class_weights"] = a.class_weights.empty() ? json(nullptr) : json(a.class_weights);
  for (const auto& [name, value] : further)
    object[name] = std::visit([](const auto& v) { return json(v); }, value);
  return text_of(object);
}

std::string trainer_state_json(const TrainerState& state, const TrainingArguments& arguments) {
  json history = json::array();
  for (const Metrics& entry : state.log_history)
    history.push_back(object_of(entry));
  const json ours = {{"total_loss", number(state.total_loss)},
                     {"loss_since_log", number(state.loss_since_log)},
                     {"logged_step", state.logged_step},
                     {"non_finite_steps", state.non_finite_steps},
                     {"non_finite_in_a_row", state.non_finite_in_a_row},
                     {"seconds", state.seconds},
                     {"optimizer_seconds", state.optimizer_seconds},
                     {"learning_rate", state.learning_rate},
                     {"loss", number(state.loss)},
                     {"grad_norm", number(state.grad_norm)},
                     {"train_set_hash", state.train_set_hash}};
  json callbacks = {{"Trainer", {{"args", json::object()}, {"attributes", ours}}}};
  for (const auto& [name, attributes] : state.stateful_callbacks)
    callbacks[name] = {{"args", json::object()}, {"attributes", object_of(attributes)}};
  const bool has_best = !state.best_model_checkpoint.empty();
  return text_of(
      {{"best_global_step", optional(state.best_global_step)},
       {"best_metric", state.best_metric ? number(*state.best_metric) : json(nullptr)},
       {"best_model_checkpoint", has_best ? json(state.best_model_checkpoint) : json(nullptr)},
       {"epoch", state.epoch},
       {"eval_steps", arguments.eval_interval(state.max_steps)},
       {"global_step", state.global_step},
       {"is_hyper_param_search", false},
       {"is_local_process_zero", true},
       {"is_world_process_zero", true},
       {"log_history", history},
       {"logging_steps", arguments.logging_interval(state.max_steps)},
       {"max_steps", state.max_steps},
       {"num_input_tokens_seen", state.tokens},
       {"num_train_epochs", int64_t(std::ceil(state.num_train_epochs))},
       {"save_steps", arguments.save_interval(state.max_steps)},
       {"stateful_callbacks", callbacks},
       {"total_flos", number(state.total_flos)},
       {"train_batch_size", arguments.per_device_train_batch_size},
       {"trial_name", nullptr},
       {"trial_params", nullptr}});
}

std::string all_results_json(const Metrics& train_results, const Metrics& eval_results,
                             const TrainerState& state, const MemoryLedger& ledger,
                             const MeasuredMemory& measured) {
  json all = object_of(train_results);
  all.update(object_of(eval_results));
  const auto steps = double(std::max<int64_t>(state.global_step, 1));
  all["train_optimizer_step_ms"] = number(1000 * state.optimizer_seconds / steps);
  all["memory"] = ledger_json(ledger, measured);
  return text_of(all);
}

}  // namespace minim::train
