#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "optim/make_optimizer.h"
#include "optim/schedule.h"
#include "text/sampler.h"
#include "train/metrics.h"
#include "train/precision.h"

namespace minim::train {

// When something happens during training; best, at every evaluation that beats those before it, is
// for checkpoints alone.
enum class IntervalStrategy : uint8_t { no, steps, epoch, best };

// "no", "steps", "epoch" or "best".
std::string_view name_of(IntervalStrategy strategy);
// Throws for a name that is none.
IntervalStrategy parse_interval_strategy(std::string_view name);

// How a model is trained. Names and defaults are those of Hugging Face's TrainingArguments, but
// that checkpoints are only written where they are asked for.
struct TrainingArguments {
  int64_t per_device_train_batch_size = 8;
  int64_t per_device_eval_batch_size = 8;
  double num_train_epochs = 3.0;
  int64_t max_steps = -1;  // above 0: instead of num_train_epochs
  int64_t gradient_accumulation_steps = 1;
  bool dataloader_drop_last = false;  // an epoch's last batch, if it is not full
  std::string optim = "adamw";        // for optim::make_optimizer(), as are the next five
  std::string optim_args = {};
  double adam_beta1 = 0.9, adam_beta2 = 0.999, adam_epsilon = 1e-8;
  double weight_decay = 0;
  double learning_rate = 5e-5;
  std::string lr_scheduler_type = "linear";
  std::string lr_scheduler_kwargs = {};  // its other options, such as "num_cycles=2"
  double warmup_steps = 0;               // below 1: a ratio of all steps
  double warmup_ratio = 0;               // used where warmup_steps is 0
  double max_grad_norm = 1.0;            // 0: no clipping
  uint64_t seed = 42;
  std::optional<uint64_t> data_seed = {};  // of the order of rows; none: seed
  // Blocks are computed again in the backward, and not kept: less memory, more time, the same bits.
  bool gradient_checkpointing = false;
  // In what forward and backward compute; bf16 and fp16 say the same, as in Hugging Face. At most
  // one of the three may ask for something.
  Precision precision = Precision::fp32;
  bool bf16 = false, fp16 = false;
  // Evaluation in it, also where training is f32. The weights themselves stay f32.
  bool bf16_full_eval = false, fp16_full_eval = false;
  text::SamplingStrategy train_sampling_strategy = text::SamplingStrategy::random;
  // One for each class: the loss of training is the mean over rows weighted by their classes, as
  // torch's CrossEntropyLoss(weight). Empty: all count alike, as they do in evaluation anyway.
  std::vector<double> class_weights = {};
  // Share of the target that is spread over all classes, in training and in eval_loss; the loss
  // without is then eval_unsmoothed_loss. For rows of one class each.
  double label_smoothing_factor = 0;
  // Noise on the word embeddings in training; none: no noise. See DistilBertEmbeddings.
  std::optional<double> neftune_noise_alpha = {};
  // Updates in a row that are left out because their loss or their gradient is not finite; one more
  // ends the run. Each is logged. A parameter that is not finite ends the run at once.
  int64_t non_finite_patience = 0;
  // A run that resumes begins the epoch at hand anew instead of after the rows that it had seen.
  bool ignore_data_skip = false;
  IntervalStrategy eval_strategy = IntervalStrategy::no;
  IntervalStrategy logging_strategy = IntervalStrategy::steps;
  double logging_steps = 500;             // below 1: a ratio of all steps, as are the next two
  bool logging_first_step = false;        // also log the first update, under any strategy
  std::optional<double> eval_steps = {};  // none: logging_steps
  double eval_delay = 0;       // epochs or updates, as eval_strategy, before the first evaluation
  bool eval_on_start = false;  // also evaluate before the first update; that is never the best
  bool prediction_loss_only = false;  // no metrics but eval_loss, and no logits kept for them

  IntervalStrategy save_strategy = IntervalStrategy::no;
  double save_steps = 500;
  std::optional<int64_t> save_total_limit = {};  // checkpoints that are kept; none, 0: all
  bool save_only_model = false;                  // no optimizer, schedule or random numbers

  // At the end the weights of the best evaluation are loaded. Needs an eval_strategy, the same
  // save_strategy or best, and under steps save_steps that are a multiple of eval_steps.
  bool load_best_model_at_end = false;
  // "accuracy" or "eval_accuracy"; "": loss with load_best_model_at_end and save_strategy best,
  // else nothing is compared.
  std::string metric_for_best_model = {};
  std::optional<bool> greater_is_better = {};  // none: unless the metric's name ends with "loss"

  // Throws, naming the argument, for a value that makes no sense.
  void validate() const;
  // The one of precision, bf16 and fp16 that asks for something.
  Precision mixed_precision() const;
  // What autocast takes on a device in training and in evaluation; none for f32.
  std::optional<DType> autocast_dtype(Device device) const;
  std::optional<DType> eval_autocast_dtype(Device device) const;
  // The arguments that the optimizer is made with.
  optim::OptimizerArguments optimizer_arguments() const;
  // The schedule of a run of that many updates.
  optim::ScheduleOptions schedule_options(int64_t max_steps) const;
  // Updates of such a run between two log entries, evaluations and checkpoints under steps.
  int64_t logging_interval(int64_t max_steps) const;
  int64_t eval_interval(int64_t max_steps) const;
  int64_t save_interval(int64_t max_steps) const;
  // Name with "eval_" of the metric that tells the best evaluation; "" where none does.
  std::string best_metric_name() const;
  // Whether a value of that metric is better than another; never where either is NaN.
  bool is_better(double value, double than) const;
  // The value of that metric; throws, listing those there are, where it is not among them.
  double best_metric_of(const Metrics& metrics) const;
};

}  // namespace minim::train
