#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/parallel.h"
#include "models/distilbert.h"
#include "models/rehearsal.h"

// What a training step of DistilBERT takes, known from its config before anything is allocated.
namespace minim::models {

// Names and shapes of a model with nothing behind them: parameters(), freeze() and everything else
// that reads no weight works, and takes next to no memory whatever the sizes. Reading a weight is a
// segmentation fault. Throws for a config whose parameters fit into no memory.
DistilBertForSequenceClassification model_without_weights(const DistilBertConfig& config);

// All that memory depends on in a packed batch.
struct BatchShape {
  int64_t sequences, tokens, longest;
  bool token_types = false;  // as batches of sentence pairs have them

  // `sequences` of `length` tokens each. Throws for sizes below 1, or beyond what a batch can hold.
  static BatchShape uniform(int64_t sequences, int64_t length);
  static BatchShape of(std::span<const int64_t> lengths);
};

struct StepOptions {
  int64_t gradient_accumulation_steps = 1;
  int threads = thread_count();  // attention has a buffer for each
  // In what forward and backward compute under an Autocast, as the CPU does it; none: f32. The loss
  // of f16 is scaled.
  std::optional<DType> autocast = {};
  bool keeps_logits = true;  // an evaluation: those of all rows, which metrics are computed from
};

// Bytes of a training step as train::Trainer does it. Peaks are of the whole step. What Eigen
// needs to rearrange matrices for a product is not counted here, nor by memory::peak().
struct StepMemory {
  int64_t weights = 0;              // of all parameters
  int64_t casts = 0;                // of parameters in autocast's dtype, kept beside them
  int64_t gradients = 0;            // of those that are trained
  int64_t activations = 0;          // peak: those kept, and gradients on their way
  int64_t workspace = 0;            // peak
  int64_t data = 0;                 // of one batch
  int64_t together = 0;             // peak of the sum of all but the weights
  std::vector<MemoryPart> at_peak;  // what the activations are when there are most
  int64_t allocation_at_peak = 0;   // which one of the step's that is

  int64_t total() const { return weights + casts + together; }
};

// Bytes of an evaluation as train::Evaluator does it; peaks of the whole of it.
struct EvaluationMemory {
  int64_t activations = 0;  // of a batch, or of its loss in f64
  int64_t workspace = 0;
  int64_t data = 0;      // of a batch, and the logits of all rows where they are kept
  int64_t casts = 0;     // of parameters in autocast's dtype
  int64_t together = 0;  // of the sum of activations, workspace and data
};

// Rehearses a step of the model, whose weights it does not read, on batches of this shape; blocks
// are recomputed where model.is_gradient_checkpointing(). Throws where no parameter is trained, a
// sequence is longer than the positions, or sizes overflow.
StepMemory rehearse_step(const DistilBertForSequenceClassification& model, const BatchShape& batch,
                         const StepOptions& options = {});

// The same for an evaluation of `rows` rows in batches of at most this shape. Throws for a batch of
// more rows, sequences longer than the positions, or sizes that overflow.
EvaluationMemory rehearse_evaluation(const DistilBertForSequenceClassification& model,
                                     const BatchShape& batch, int64_t rows,
                                     const StepOptions& options = {});

}  // namespace minim::models
