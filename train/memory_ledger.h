#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "core/memory.h"
#include "models/distilbert_memory.h"
#include "nn/module.h"
#include "optim/state_size.h"
#include "train/run_description.h"

namespace minim::train {

// What a run needs by category: bytes predicted from shapes, and the numbers that they hold.
struct MemoryLedger {
  Device device;  // of the model, whose memory is measured
  int64_t predicted_weights = 0, predicted_gradients = 0, predicted_optimizer_state = 0;
  int64_t parameters = 0, trained_parameters = 0;
  int64_t optimizer_state_elements = 0;  // in tensors; step counters are not among them
  // Of a training step on the largest batch, and of an evaluation; none where no batch is known.
  std::optional<models::StepMemory> step;
  std::optional<models::EvaluationMemory> evaluation;
  int64_t label_bytes = 0;     // of all rows, which are there all the time
  int64_t predicted_peak = 0;  // of all tensors at once in either, once the state exists

  // From the parameters that are trained and what the optimizer says it will keep.
  MemoryLedger(const nn::Module& model, const optim::StateSize& optimizer_state);
  // With the step and the evaluation that `classifier memory` predicts too, on the largest batches
  // that were met.
  MemoryLedger(const RunDescription& run, const TrainerState& state);

  // Predicted bytes of a category; none where no batch is known and it depends on that.
  std::optional<int64_t> predicted(memory::Category category) const;
};

// The measured peak of each category and of all together, as of now.
struct MeasuredMemory {
  std::array<int64_t, memory::categories> peaks = {};
  int64_t peak = 0;

  explicit MeasuredMemory(Device device);
};

// A line per category and one for all together, predicted beside measured, in MiB of 2^20 bytes.
std::string ledger_table(const MemoryLedger& ledger, const MeasuredMemory& measured);

}  // namespace minim::train
