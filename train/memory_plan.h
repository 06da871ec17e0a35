#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "models/distilbert_memory.h"
#include "optim/make_optimizer.h"

// What a training run needs in memory under each optimizer, before anything of the model's size is
// allocated.
namespace minim::train {

// An optimizer by name, with options in the syntax of optim::OptimizerArguments::optim_args.
struct OptimizerChoice {
  std::string name, optim_args;
};

// Every optimizer that there is, in its defaults; those of 8 bits also with embeddings in f32, as
// Hugging Face's Trainer has them.
std::vector<OptimizerChoice> all_optimizers();

struct OptimizerPlan {
  OptimizerChoice choice;
  optim::StateSize state;
  int64_t update_workspace = 0;  // peak of what an update needs beside the state; bytes
  int64_t peak = 0;              // of all tensors in a step or an evaluation, once the state exists
};

// What is evaluated: rows, in batches of at most that shape.
struct EvaluationShape {
  int64_t rows;
  models::BatchShape batch;
};

struct MemoryPlan {
  // One parameter.
  struct Entry {
    std::string name;
    Shape shape;
    bool trained;
  };

  models::DistilBertConfig config;
  std::vector<Entry> tensors;
  int64_t parameters = 0, trained_parameters = 0;
  models::BatchShape batch;
  models::StepOptions options;
  bool recomputes = false;  // blocks, in the backward
  models::StepMemory step;
  std::vector<OptimizerPlan> optimizers;
  std::optional<EvaluationShape> evaluation;
  std::optional<models::EvaluationMemory> evaluation_memory;  // where that is given
};

// Peak of what an update under the optimizer of that name works with beside its state; bytes.
int64_t update_workspace(std::string_view optimizer, const NamedTensors& trained);

// The plan of training `model`, whose weights are not read (models::model_without_weights makes one
// of a config; freeze() says what is trained, gradient_checkpointing_enable() that blocks are
// recomputed), on batches of this shape, and of its evaluations where there are. Throws what
// models::rehearse_step, models::rehearse_evaluation and optim::make_optimizer throw.
//
// Peaks are what memory::peak() says of every step but the first, which has no optimizer state
// until its update, and of evaluations between them. Beside them a process holds the labels and ids
// of its data, the program, and what Eigen needs for a product.
MemoryPlan plan_memory(const models::DistilBertForSequenceClassification& model,
                       const models::BatchShape& batch,
                       const std::vector<OptimizerChoice>& optimizers = all_optimizers(),
                       const models::StepOptions& options = {},
                       const std::optional<EvaluationShape>& evaluation = {});
MemoryPlan plan_memory(const models::DistilBertConfig& config, const models::BatchShape& batch,
                       const std::vector<OptimizerChoice>& optimizers = all_optimizers(),
                       const models::StepOptions& options = {},
                       const std::optional<EvaluationShape>& evaluation = {});

}  // namespace minim::train
