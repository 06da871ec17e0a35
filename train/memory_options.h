#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "train/memory_plan.h"

// What options of training would save.
namespace minim::train {

// A step with one option more than a plan has.
struct OptionPlan {
  std::string option;  // as `classifier train` has it; "": the plan as it is
  int64_t weights = 0, activations = 0;
  int64_t peak = 0;  // under the plan's first optimizer
};

// The plan of `model` as it is, then with each of these that it does not have yet: gradient
// checkpointing, half the batch accumulated twice, mixed precision, frozen embeddings.
std::vector<OptionPlan> plan_options(const models::DistilBertForSequenceClassification& model,
                                     const MemoryPlan& plan);

// A line for each: MiB, and how much the peak differs from the first.
std::string options_table(const std::vector<OptionPlan>& options, const MemoryPlan& plan);

// Arguments of a Trainer, such as "gradient_checkpointing", under which a step on such batches
// would need less; for memory::Advice.
std::vector<std::string> arguments_that_save(
    const models::DistilBertForSequenceClassification& model, const models::BatchShape& batch,
    const models::StepOptions& options);

}  // namespace minim::train
