#pragma once

#include <optional>

#include "models/distilbert.h"
#include "text/packing.h"
#include "train/metrics.h"

namespace minim::train {

// Metrics of a set, and what they were computed from.
struct Evaluation {
  Metrics metrics;  // eval_loss, eval_<metric>, eval_runtime, ...
  EvalPrediction prediction;
};

// Runs a classifier over data in evaluation mode, batch by batch, in order.
class Evaluator {
 public:
  using Model = models::DistilBertForSequenceClassification;

  // The model is the caller's and outlives the Evaluator; batches are moved to where it is. With a
  // dtype the forwards run under Autocast, and the losses in f64 as ever.
  Evaluator(const Model& model, int64_t batch_size, ComputeMetrics compute_metrics,
            std::optional<DType> autocast = {});

  // Logits [rows, labels] on the CPU, and the labels as the set has them.
  EvalPrediction predict(const text::Examples& set) const;
  // Loss over the whole set, metrics and speed; throws if the set is empty or has no labels.
  Evaluation evaluate(const text::Examples& set) const;

 private:
  const Model& model_;
  int64_t batch_size_;
  ComputeMetrics compute_metrics_;
  std::optional<DType> autocast_;
};

}  // namespace minim::train
