#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "models/distilbert.h"
#include "optim/grad_scaler.h"
#include "optim/optimizer.h"
#include "text/packing.h"
#include "train/callback.h"
#include "train/captured_step.h"
#include "train/evaluator.h"
#include "train/training_arguments.h"

namespace minim::train {

// Where a run begins.
struct ResumeOptions {
  // Folder of a checkpoint (train/checkpoint.h) to go on from; "": from the start.
  std::string resume_from_checkpoint = {};
};

// Trains and evaluates a classifier as Hugging Face's Trainer does, on packed batches.
//
// One difference is deliberate: an update over several micro-batches is the exact gradient of the
// mean over all their rows, so k batches of b rows equal one of k * b, ragged ends included.
class Trainer {
 public:
  using Model = models::DistilBertForSequenceClassification;

  // The model and the optimizer are the caller's and outlive the Trainer; all is computed where the
  // model is, so it is moved before the optimizer is made. Without evaluation data
  // `eval_set` is empty. An optimizer that finds its rate itself (Adafactor's relative_step) needs
  // a learning_rate of 0 and a constant schedule; the rates that it found are logged. With
  // OnNonFinite::skip, updates whose gradients are not finite are left out and do not end the run.
  // On a device the losses of updates are read together, when one is logged, evaluated or saved,
  // and at the latest after 64; until then state().loss is that of an earlier update. An update
  // that is one batch is launched there as one graph (train/captured_step.h) once its shape has
  // occurred, with the same results; MINIM_CUDA_GRAPHS=0 in the environment leaves that out.
  Trainer(Model& model, TrainingArguments arguments, text::Examples train_set,
          text::Examples eval_set, optim::AnyOptimizer& optimizer,
          ComputeMetrics compute_metrics = classification_metrics);

  void add_callback(std::shared_ptr<TrainerCallback> callback);

  // Runs all steps. Returns train_runtime, train_samples_per_second, train_steps_per_second,
  // total_flos, train_loss and epoch. Throws, naming the step and the first tensor that is not
  // finite, when the loss or a gradient is not (and non_finite_patience is at its end), and
  // Interrupted when a callback asks for that.
  //
  // A run that resumes from a checkpoint goes on as the one that wrote it: its weights, optimizer
  // state, logs and later checkpoints are the same to the last bit. Throws, naming them, where
  // arguments differ that decide the result, and for other training data. Where only the number of
  // updates differs, the learning rate follows the new one, as in Hugging Face's Trainer.
  Metrics train(const ResumeOptions& options = {});

  const TrainerState& state() const { return state_; }
  // Updates that were launched as one graph.
  int64_t launched_updates() const { return launched_updates_; }
  const text::Examples& eval_set() const { return eval_set_; }

 private:
  using Rows = std::vector<int64_t>;
  int64_t updates_per_epoch() const;
  void begin(const ResumeOptions& options);
  void check_best_metric() const;
  bool train_epoch(std::span<const Rows> batches);
  bool after_update();
  TrainerControl wishes() const;
  void save();
  void compare_to_best(const Metrics& metrics);
  void load_best();
  struct MicroBatch {
    Rows rows;
    double share;         // of its loss in the update's
    Generator generator;  // before its dropout
    Tensor loss;          // where it was computed
  };
  struct Update {
    int64_t step;
    std::vector<MicroBatch> micro_batches = {};
    double loss = 0;
    Tensor norm = {};
  };
  std::unique_ptr<CapturedStep> make_captured_step();
  void update(std::span<const Rows> micro_batches);
  bool step_at_once(Update& update, optim::StepOptions options);
  void step_there(Update& update, optim::StepOptions options);
  bool launch_step(Update& update, std::optional<double> lr);
  Tensor backward(const Rows& rows, double share);
  Tensor loss_of(const PackedBatch& batch) const;
  Tensor loss_of(const Tensor& logits, const Tensor& labels) const;
  void note_size(const PackedBatch& batch, const Rows& rows);
  void note_evaluation();
  double read(const MicroBatch& micro_batch);
  bool is_norm_refused() const;
  void check_norm(double loss, const NamedTensors& parameters);
  bool has_patience() const;
  void count_loss(double loss);
  void count_left_out(double loss);
  void read_losses();
  [[noreturn]] void stop_at(double loss, const std::string& reason);
  void log();
  Metrics evaluate_and_tell();
  void warn(const std::string& sentence);
  std::string first_not_finite(const MicroBatch& micro_batch) const;

  Model& model_;
  TrainingArguments arguments_;
  text::Examples train_set_, eval_set_;
  optim::AnyOptimizer& optimizer_;
  Evaluator evaluator_;
  std::optional<DType> autocast_;
  optim::GradScaler scaler_;
  std::vector<Update> unread_;                   // updates whose losses are on the device
  std::unique_ptr<CapturedStep> captured_ = {};  // where steps are launched as graphs
  int64_t launched_updates_ = 0;
  std::vector<std::shared_ptr<TrainerCallback>> callbacks_;
  std::function<double(int64_t)> learning_rate_at_;
  Tensor class_weights_ = {};   // [classes]; undefined where all count alike
  bool was_collapsed_ = false;  // in the last evaluation
  TrainerState state_;
};

}  // namespace minim::train
