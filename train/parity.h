#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "models/distilbert.h"
#include "optim/any_optimizer.h"

// How far a training step on a device is from the same one on the CPU.
namespace minim::train {

// The largest difference between two tensors that should be equal.
struct TensorParity {
  std::string kind;  // "logits", "loss", "gradient norm", "gradient" or "parameter"
  std::string name;  // of the parameter; empty for the first three
  Shape shape;
  double scale = 0;       // largest magnitude on the CPU
  double difference = 0;  // NaN where either holds a number that is not finite
  double tolerance = 0;

  bool agrees() const { return difference <= tolerance; }
};

struct Parity {
  Device device;
  std::string optimizer;
  int64_t sequences = 0, tokens = 0;
  std::vector<TensorParity> tensors;  // in the order of the step

  bool agrees() const;
};

// What is to be compared. Both are called for the CPU and for the device; models must be equal.
struct ParityStep {
  std::function<models::DistilBertForSequenceClassification(Device)> make_model;
  std::function<std::unique_ptr<optim::AnyOptimizer>(const nn::Module&)> make_optimizer;
  double max_grad_norm = 1.0;  // 0: no clipping
};

// One training step, dropout included, on the CPU and on a device. The optimizers get the same
// gradients, those of the CPU: one that divides a gradient by its size makes much of the rounding
// of a gradient that is zero.
//
// Tolerances are for f32, whose products and sums are added up in another order on a device: 1e-4
// of the largest logit, 1e-5 of the loss, 1e-4 of the norm; for a gradient 1e-4 of its largest
// element and 2e-6 of the largest of all, below which is the rounding of what cancels; for a
// parameter 1e-6 of its largest element and 1e-3 of its largest change.
Parity compare_step(const ParityStep& step, Device device, const PackedBatch& batch);

// A batch of token ids and labels that fit the config, drawn with `seed`; one sequence for each
// length.
PackedBatch random_batch(const models::DistilBertConfig& config,
                         const std::vector<int64_t>& lengths, uint64_t seed = 0);

// A line for each tensor, and the verdict.
std::string parity_table(const Parity& parity);
// The same as one JSON object; numbers that are not finite are null.
std::string parity_json(const Parity& parity);

}  // namespace minim::train
