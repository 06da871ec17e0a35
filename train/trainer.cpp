#include "train/trainer.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "optim/schedule.h"
#include "train/class_weights.h"
#include "train/data_loader.h"
#include "train/interrupt.h"
#include "train/resume.h"
#include "train/stopwatch.h"

namespace minim::train {

namespace {

// FNV-1a over the bytes of the token ids, their types, lengths and labels.
uint64_t hash_of(const text::Examples& set) {
  uint64_t hash = 14695981039346656037u;
  const auto add = [&hash](const auto& values) {
    const auto bytes = std::as_bytes(std::span(values));
    for (const std::byte byte : bytes)
      hash = (hash ^ uint64_t(byte)) * 1099511628211u;
  };
  text::TokenSequence buffer;
  for (size_t i = 0; i < set.sequences.size(); ++i) {
    const text::TokenSequence& sequence = set.sequences.read(i, buffer);
    add(sequence.input_ids);
    add(sequence.token_type_ids);
  }
  add(set.lengths());
  if (set.labels.defined()) add(set.labels.to_vector<double>());
  return hash;
}

// Noise on a model's word embeddings while it is trained, and not after.
class EmbeddingNoise {
 public:
  EmbeddingNoise(Trainer::Model& model, double alpha)
      : alpha_(model.distilbert.embeddings.neftune_noise_alpha),
        before_(std::exchange(alpha_, alpha)) {}
  ~EmbeddingNoise() { alpha_ = before_; }
  EmbeddingNoise(const EmbeddingNoise&) = delete;
  EmbeddingNoise& operator=(const EmbeddingNoise&) = delete;

 private:
  double& alpha_;
  double before_;
};

}  // namespace

Trainer::Trainer(Model& model, TrainingArguments arguments, text::Examples train_set,
                 text::Examples eval_set, optim::AnyOptimizer& optimizer,
                 ComputeMetrics compute_metrics)
    : model_(model),
      arguments_(std::move(arguments)),
      train_set_(std::move(train_set)),
      eval_set_(std::move(eval_set)),
      optimizer_(optimizer),
      evaluator_(model, arguments_.per_device_eval_batch_size,
                 arguments_.prediction_loss_only ? nullptr : std::move(compute_metrics),
                 arguments_.eval_autocast_dtype(model.device()), arguments_.label_smoothing_factor),
      autocast_(arguments_.autocast_dtype(model.device())),
      scaler_({.enabled = autocast_ == DType::f16}) {
  arguments_.validate();
  check(train_set_.sequences.empty() || train_set_.labels.defined(),
        "trainer: the training set has no labels");
  check(arguments_.eval_strategy == IntervalStrategy::no || !eval_set_.sequences.empty(),
        "eval_strategy: needs evaluation data; there is none");
  check(!arguments_.eval_on_start || !eval_set_.sequences.empty(),
        "eval_on_start: needs evaluation data; there is none");
  if (optimizer_.finds_rate()) {
    check(arguments_.learning_rate == 0,
          "learning_rate: is {}, but {} finds its rate itself; must be 0, or relative_step false",
          arguments_.learning_rate, optimizer_.name());
    check(arguments_.lr_scheduler_type == "constant",
          "lr_scheduler_type: is {}, but {} finds its rate itself; must be constant",
          arguments_.lr_scheduler_type, optimizer_.name());
  }

  if (!arguments_.class_weights.empty()) {
    check(train_set_.labels.defined() && train_set_.labels.dtype() == DType::i64 &&
              int64_t(arguments_.class_weights.size()) == model_.config.num_labels(),
          "class_weights: {} for {} classes; there must be one for each, and labels that are one "
          "class each",
          arguments_.class_weights.size(), model_.config.num_labels());
    class_weights_ =
        Tensor::from(arguments_.class_weights, {model_.config.num_labels()}, model_.device());
    class_weights_ = convert(class_weights_, model_.classifier.weight.dtype());
  }

  check(arguments_.label_smoothing_factor == 0 || !train_set_.labels.defined() ||
            (train_set_.labels.dtype() == DType::i64 && model_.config.num_labels() > 1),
        "label_smoothing_factor: is {}, but labels are not one class each; must be 0",
        arguments_.label_smoothing_factor);
  const auto rows = int64_t(train_set_.sequences.size());
  check(!arguments_.dataloader_drop_last || rows == 0 ||
            rows >= arguments_.per_device_train_batch_size,
        "dataloader_drop_last: {} rows do not fill a batch of {}, so that none are left; take "
        "smaller batches or keep the last",
        rows, arguments_.per_device_train_batch_size);
  const auto updates = double(updates_per_epoch());
  check(arguments_.max_steps > 0 || arguments_.num_train_epochs * updates < 0x1p53,
        "num_train_epochs: {} of {} updates each are too many", arguments_.num_train_epochs,
        updates);
  state_.max_steps = arguments_.max_steps > 0
                         ? arguments_.max_steps
                         : int64_t(std::ceil(arguments_.num_train_epochs * updates));
  state_.num_train_epochs =
      arguments_.max_steps > 0 ? double(state_.max_steps) / updates : arguments_.num_train_epochs;
  learning_rate_at_ = optim::make_schedule(arguments_.lr_scheduler_type,
                                           arguments_.schedule_options(state_.max_steps));
  const int64_t save_interval = arguments_.save_interval(state_.max_steps);
  const int64_t eval_interval = arguments_.eval_interval(state_.max_steps);
  check(!arguments_.load_best_model_at_end || arguments_.eval_strategy != IntervalStrategy::steps ||
            arguments_.save_strategy == IntervalStrategy::best ||
            save_interval % eval_interval == 0,
        "load_best_model_at_end: save_steps must be a multiple of the {} eval_steps; {} of {} "
        "updates is every {}",
        eval_interval, arguments_.save_steps, state_.max_steps, save_interval);
}

void Trainer::add_callback(std::shared_ptr<TrainerCallback> callback) {
  callbacks_.push_back(std::move(callback));
}

int64_t Trainer::updates_per_epoch() const {
  const text::Sampler in_order(int64_t(train_set_.sequences.size()),
                               {.batch_size = arguments_.per_device_train_batch_size,
                                .strategy = text::SamplingStrategy::sequential,
                                .drop_last = arguments_.dataloader_drop_last});
  const int64_t per_update = arguments_.gradient_accumulation_steps;
  return std::max<int64_t>((in_order.batches_per_epoch() + per_update - 1) / per_update, 1);
}

// Whatever can be found wrong now is not found wrong after hours.
void Trainer::check_best_metric() const {
  if (arguments_.best_metric_name().empty()) return;
  std::vector<int64_t> rows(std::min<size_t>(eval_set_.sequences.size(), 8));
  std::iota(rows.begin(), rows.end(), 0);
  text::Examples few{.labels = text::select_labels(eval_set_.labels, rows)};
  for (const int64_t row : rows)
    few.sequences.push_back(eval_set_.sequences[size_t(row)]);
  Metrics metrics;
  try {
    metrics = evaluator_.evaluate(few).metrics;
  } catch (const Error&) {
    return;  // these few may be without what all together have
  }
  arguments_.best_metric_of(metrics);
}

// Up to the first update.
void Trainer::begin(const ResumeOptions& options) {
  state_.train_set_hash = hash_of(train_set_);
  if (arguments_.gradient_checkpointing) model_.gradient_checkpointing_enable();
  check_best_metric();
  if (scaler_.is_enabled()) state_.scaler = scaler_.state();
  if (const std::string& checkpoint = options.resume_from_checkpoint; !checkpoint.empty()) {
    check_same_run(checkpoint, arguments_, optimizer_.name());
    restore_checkpoint(checkpoint, model_, optimizer_, state_);
    for (const auto& callback : callbacks_)
      for (const auto& [name, attributes] : state_.stateful_callbacks)
        if (callback->name() == name) callback->restore(attributes);
    if (arguments_.ignore_data_skip) state_.data_batch = 0;
  }
  if (state_.scaler) scaler_.load_state(*state_.scaler);
  scaler_.to(model_.device());
  model_.train();
  model_.zero_grad();
  captured_ = make_captured_step();
  for (const auto& callback : callbacks_)
    callback->on_train_begin(state_);
  // A run that goes on has done that before its first update.
  if (arguments_.eval_on_start && state_.global_step == 0) evaluate_and_tell();
}

Metrics Trainer::train(const ResumeOptions& options) {
  const auto rows = int64_t(train_set_.sequences.size());
  check(rows > 0, "trainer: the training set is empty");
  const text::Sampler sampler = make_sampler(
      train_set_, {.batch_size = arguments_.per_device_train_batch_size,
                   .strategy = arguments_.train_sampling_strategy,
                   .seed = arguments_.data_seed.value_or(arguments_.seed),
                   .gradient_accumulation_steps = arguments_.gradient_accumulation_steps,
                   .drop_last = arguments_.dataloader_drop_last});
  begin(options);
  check(state_.data_batch >= 0 && state_.data_batch < sampler.batches_per_epoch(),
        "{}/rng_state.json: batch {} of an epoch of {}; the checkpoint is damaged, choose another "
        "one",
        options.resume_from_checkpoint, state_.data_batch, sampler.batches_per_epoch());

  const EmbeddingNoise noise(model_, arguments_.neftune_noise_alpha.value_or(0));
  const Stopwatch whole;
  const double epoch_before = state_.epoch;
  const int64_t step_before = state_.global_step;
  bool goes_on = state_.global_step < state_.max_steps && !wishes().should_training_stop;
  while (goes_on)
    goes_on = train_epoch(sampler.batches(state_.data_epoch));
  captured_.reset();
  load_best();

  // Speeds are those of this part of the run.
  const double seconds = whole.seconds();
  const double samples = double(rows) * (state_.epoch - epoch_before);
  const auto steps = double(state_.global_step - step_before);
  const auto counted = double(std::max<int64_t>(state_.global_step - state_.non_finite_steps, 1));
  Metrics result = {{"train_runtime", seconds},
                    {"train_samples_per_second", samples / seconds},
                    {"train_steps_per_second", steps / seconds},
                    {"total_flos", state_.total_flos},
                    {"train_loss", state_.total_loss / counted},
                    {"epoch", state_.epoch}};
  state_.log_history.push_back(result);
  state_.log_history.back().emplace_back("step", double(state_.global_step));
  for (const auto& callback : callbacks_)
    callback->on_train_end(state_);
  return result;
}

// The updates of an epoch from where the run stands in it; whether there is another one after.
bool Trainer::train_epoch(std::span<const Rows> batches) {
  const auto per_update = size_t(arguments_.gradient_accumulation_steps);
  const auto& embeddings = model_.distilbert.embeddings;
  const int64_t in_embeddings =
      embeddings.word_embeddings.weight.numel() + embeddings.position_embeddings.weight.numel();
  const auto in_products = double(model_.parameter_count() - in_embeddings);
  const int64_t epoch = state_.data_epoch;
  for (auto first = size_t(state_.data_batch); first < batches.size(); first += per_update) {
    const size_t count = std::min(per_update, batches.size() - first);
    const Stopwatch step;
    update(batches.subspan(first, count));
    state_.seconds += step.seconds();
    // Two operations per weight and token forward, four backward.
    state_.total_flos = 6.0 * double(state_.tokens) * in_products;
    state_.tokens_per_second = double(state_.tokens) / state_.seconds;
    state_.epoch = double(epoch) + double(first + count) / double(batches.size());
    const bool all_rows = first + count == batches.size();
    state_.data_epoch = all_rows ? epoch + 1 : epoch;
    state_.data_batch = all_rows ? 0 : int64_t(first + count);
    if (!after_update()) return false;
  }
  return true;
}

// Logs, evaluates and saves where that is due; whether the run goes on.
bool Trainer::after_update() {
  // Those who log see the loss of the update itself.
  const int64_t log_interval = arguments_.logging_interval(state_.max_steps);
  if (state_.global_step % log_interval == 0 || state_.global_step == state_.max_steps)
    read_losses();
  for (const auto& callback : callbacks_)
    callback->on_step_end(state_);
  TrainerControl control = wishes();
  const int64_t done = state_.global_step;
  bool ends = done == state_.max_steps || control.should_training_stop;
  const bool epoch_ends = state_.data_batch == 0 || ends;
  const auto is_due = [&](IntervalStrategy strategy, int64_t interval) {
    return strategy == IntervalStrategy::epoch
               ? epoch_ends
               : strategy == IntervalStrategy::steps && done % interval == 0;
  };
  const bool logs = arguments_.logging_strategy != IntervalStrategy::no;
  if (is_due(arguments_.logging_strategy, log_interval) || (ends && logs) ||
      (done == 1 && arguments_.logging_first_step) || control.should_log)
    log();
  const bool counts_epochs = arguments_.eval_strategy == IntervalStrategy::epoch;
  const bool is_delayed = (counts_epochs ? state_.epoch : double(done)) < arguments_.eval_delay;
  if ((is_due(arguments_.eval_strategy, arguments_.eval_interval(state_.max_steps)) &&
       !is_delayed) ||
      (control.should_evaluate && !eval_set_.sequences.empty())) {
    compare_to_best(evaluate_and_tell());
    const TrainerControl after = wishes();
    ends = ends || after.should_training_stop;
    control.should_interrupt = control.should_interrupt || after.should_interrupt;
    control.should_save = control.should_save || after.should_save;
  }
  // As in Hugging Face's Trainer, the last update is saved under steps and epoch.
  const bool saves_best = arguments_.save_strategy == IntervalStrategy::best;
  const bool saves = arguments_.save_strategy != IntervalStrategy::no && !saves_best;
  const int64_t save_interval = arguments_.save_interval(state_.max_steps);
  state_.is_interrupted = control.should_interrupt && !ends;
  if (is_due(arguments_.save_strategy, save_interval) || (ends && saves) ||
      (saves_best && state_.best_global_step == done) || control.should_save ||
      state_.is_interrupted)
    save();
  return !ends;
}

TrainerControl Trainer::wishes() const {
  TrainerControl control;
  for (const auto& callback : callbacks_)
    callback->control(state_, control);
  return control;
}

void Trainer::save() {
  read_losses();
  state_.stateful_callbacks.clear();
  for (const auto& callback : callbacks_)
    if (const std::string name = callback->name(); !name.empty())
      state_.stateful_callbacks.emplace_back(name, callback->attributes());
  std::string place;
  for (const auto& callback : callbacks_)
    if (std::string folder = callback->on_save(state_); !folder.empty()) place = std::move(folder);
  if (state_.best_global_step == state_.global_step) state_.best_model_checkpoint = place;
  if (!state_.is_interrupted) return;
  const std::string told =
      fmt::format("interrupted after step {} of {}", state_.global_step, state_.max_steps);
  throw Interrupted(place.empty() ? told + "; no callback writes checkpoints"
                                  : fmt::format("{}; saved to {}", told, place));
}

// After the callbacks have seen the evaluation beside the best of those before it.
void Trainer::compare_to_best(const Metrics& metrics) {
  if (arguments_.best_metric_name().empty()) return;
  const double value = arguments_.best_metric_of(metrics);
  if (std::isnan(value)) return;
  if (state_.best_metric && !arguments_.is_better(value, *state_.best_metric)) return;
  state_.best_metric = value;
  state_.best_global_step = state_.global_step;
  state_.best_model_checkpoint.clear();
}

void Trainer::load_best() {
  if (!arguments_.load_best_model_at_end || !state_.best_global_step) return;
  check(!state_.best_model_checkpoint.empty(),
        "load_best_model_at_end: there is no checkpoint of step {}, which was best; add a callback "
        "that writes them, such as CheckpointCallback",
        *state_.best_global_step);
  load_weights(state_.best_model_checkpoint, model_);
}

void Trainer::log() {
  read_losses();
  const int64_t steps = state_.global_step - state_.logged_step;
  if (steps == 0) return;
  Metrics logs = {{"loss", state_.loss_since_log / double(steps)},
                  {"grad_norm", state_.grad_norm},
                  {"learning_rate", state_.learning_rate},
                  {"epoch", state_.epoch}};
  if (state_.scaler) {
    logs.emplace_back("loss_scale", state_.scaler->scale);
    logs.emplace_back("skipped_steps", double(state_.scaler->skipped_steps));
  }
  state_.loss_since_log = 0;
  state_.logged_step = state_.global_step;
  state_.log_history.push_back(logs);
  state_.log_history.back().emplace_back("step", double(state_.global_step));
  for (const auto& callback : callbacks_)
    callback->on_log(state_, logs);
}

Metrics Trainer::evaluate_and_tell() {
  read_losses();
  note_evaluation();
  const Evaluation evaluation = evaluator_.evaluate(eval_set_);
  Metrics metrics = evaluation.metrics;
  metrics.emplace_back("epoch", state_.epoch);
  state_.log_history.push_back(metrics);
  state_.log_history.back().emplace_back("step", double(state_.global_step));
  for (const auto& callback : callbacks_)
    callback->on_evaluate(state_, metrics);
  // Once, and not of weights that have learnt nothing yet.
  const std::string collapse = collapse_warning(evaluation.prediction, model_.config.labels);
  if (!collapse.empty() && !was_collapsed_ && state_.global_step > 0)
    warn(fmt::format("evaluation at step {}: {}", state_.global_step, collapse));
  was_collapsed_ = !collapse.empty() && state_.global_step > 0;
  return metrics;
}

void Trainer::warn(const std::string& sentence) {
  for (const auto& callback : callbacks_)
    callback->on_warning(state_, sentence);
}

}  // namespace minim::train
