#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "text/sampler.h"

namespace minim::train {

// When something happens during training.
enum class IntervalStrategy : uint8_t { no, steps, epoch };

// How a model is trained. Names and defaults are those of Hugging Face's TrainingArguments.
struct TrainingArguments {
  int64_t per_device_train_batch_size = 8;
  int64_t per_device_eval_batch_size = 8;
  double num_train_epochs = 3.0;
  int64_t max_steps = -1;  // above 0: instead of num_train_epochs
  int64_t gradient_accumulation_steps = 1;
  double learning_rate = 5e-5;
  std::string lr_scheduler_type = "linear";
  double warmup_steps = 0;     // below 1: a ratio of all steps
  double warmup_ratio = 0;     // used where warmup_steps is 0
  double max_grad_norm = 1.0;  // 0: no clipping
  uint64_t seed = 42;
  std::optional<uint64_t> data_seed = {};  // of the order of rows; none: seed
  text::SamplingStrategy train_sampling_strategy = text::SamplingStrategy::random;
  IntervalStrategy eval_strategy = IntervalStrategy::no;
  int64_t logging_steps = 500;
  std::optional<int64_t> eval_steps = {};  // none: logging_steps

  // Throws, naming the argument, for a value that makes no sense.
  void validate() const;
};

}  // namespace minim::train
