#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/device.h"
#include "optim/grad_scaler.h"
#include "train/metrics.h"

namespace minim::train {

// The most that one batch had: memory depends on nothing else of it.
struct LargestBatch {
  int64_t sequences = 0, tokens = 0, longest = 0;  // longest: tokens of one sequence
  bool token_types = false;
};

// Where a run stands; what callbacks see.
struct TrainerState {
  int64_t global_step = 0;  // updates done
  int64_t max_steps = 0;
  double epoch = 0;  // passes over the training set, with fractions
  double num_train_epochs = 0;
  double loss = 0;  // of the last update, averaged over its rows
  double learning_rate = 0;
  double grad_norm = 0;          // before clipping
  double tokens_per_second = 0;  // since training began, evaluation left out
  double seconds = 0;            // the same span
  double optimizer_seconds = 0;  // of them, in the optimizer's step
  int64_t tokens = 0;            // seen so far
  double total_flos = 0;         // floating-point operations of all forwards and backwards
  Device device;                 // of the model
  int64_t optimizer_state_bytes = 0;
  LargestBatch largest_batch;  // of this part of the run
  // The same of its evaluations, the rows of one, and whether it keeps their logits for metrics;
  // none before the first.
  LargestBatch largest_eval_batch;
  int64_t eval_rows = 0;
  bool eval_keeps_logits = true;
  int64_t label_bytes = 0;  // of the labels of all rows
  // Where the next update finds its rows: an epoch of the sampler, and a batch of it.
  int64_t data_epoch = 0, data_batch = 0;
  // Sums of the losses of all updates, and of those since the last log entry, after logged_step.
  double total_loss = 0, loss_since_log = 0;
  int64_t logged_step = 0;
  // Updates that were left out because they were not finite, in all and up to the last one.
  int64_t non_finite_steps = 0, non_finite_in_a_row = 0;
  // Under fp16: the scale of the loss, and the updates left out.
  std::optional<optim::GradScaler::State> scaler;
  // Every log and evaluation so far; each has "step" as its last entry.
  std::vector<Metrics> log_history;
  // The best evaluation by metric_for_best_model, and the checkpoint of its step ("": none).
  std::optional<double> best_metric;
  std::optional<int64_t> best_global_step;
  std::string best_model_checkpoint;
  // A number of the training data that other data do not have.
  uint64_t train_set_hash = 0;
  // What callbacks keep from one part of a run to the next, by name().
  std::vector<std::pair<std::string, Metrics>> stateful_callbacks;
  // The run ends here for now and is to go on from the checkpoint that is due.
  bool is_interrupted = false;
};

// What a callback wants of a run.
struct TrainerControl {
  bool should_training_stop = false;  // this update is the last: the run ends as at max_steps
  bool should_interrupt = false;      // save a checkpoint to go on from, and throw Interrupted
  bool should_log = false, should_evaluate = false, should_save = false;
};

// What happens beside the training itself: override what is of interest.
class TrainerCallback {
 public:
  virtual ~TrainerCallback() = default;

  virtual void on_train_begin(const TrainerState&) {}
  virtual void on_step_end(const TrainerState&) {}
  // Training loss, gradient norm and rate, every logging_steps.
  virtual void on_log(const TrainerState&, const Metrics&) {}
  virtual void on_evaluate(const TrainerState&, const Metrics&) {}
  // A sentence that somebody should read, such as that all rows are predicted to be of one class.
  virtual void on_warning(const TrainerState&, const std::string&) {}
  // A checkpoint is due, as save_strategy says; after the update's logs and evaluation. Returns the
  // folder of the checkpoint where it wrote one, else "".
  virtual std::string on_save(const TrainerState&) { return ""; }
  virtual void on_train_end(const TrainerState&) {}

  // Sets what it wants. Asked before the first update, after on_step_end and after on_evaluate.
  virtual void control(const TrainerState&, TrainerControl&) {}

  // For callbacks that a resumed run has to find as they were: a name, what is written to
  // checkpoints under it, and the way back. Without a name nothing is written.
  virtual std::string name() const { return ""; }
  virtual Metrics attributes() const { return {}; }
  virtual void restore(const Metrics&) {}
};

}  // namespace minim::train
