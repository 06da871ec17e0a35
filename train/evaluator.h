#pragma once

#include <functional>
#include <optional>
#include <string>

#include "models/distilbert.h"
#include "text/packing.h"
#include "train/metrics.h"

namespace minim::train {

// Metrics of a set, and what they were computed from.
struct Evaluation {
  Metrics metrics;            // eval_loss, eval_<metric>, eval_runtime, ...
  EvalPrediction prediction;  // undefined where the loss alone was asked for
};

// A sentence where all rows are predicted to be of one class though their labels are not: the
// class, its share of the rows, and the accuracy of always answering the commonest one. "" where
// that is not so and where labels are no classes.
std::string collapse_warning(const EvalPrediction& prediction,
                             const std::vector<std::string>& labels);

// Runs a classifier over data in evaluation mode, batch by batch, in order.
class Evaluator {
 public:
  using Model = models::DistilBertForSequenceClassification;

  // The model is the caller's and outlives the Evaluator; batches are moved to where it is. Without
  // compute_metrics the loss alone is computed, and no logits are kept for more than a batch. With
  // a dtype the forwards run under Autocast, and the losses in f64 as ever. With label smoothing
  // eval_loss is smoothed, as in Hugging Face's Trainer, and eval_unsmoothed_loss is not.
  Evaluator(const Model& model, int64_t batch_size, ComputeMetrics compute_metrics,
            std::optional<DType> autocast = {}, double label_smoothing = 0);

  // Logits [rows, labels] on the CPU, and the labels as the set has them.
  EvalPrediction predict(const text::Examples& set) const;
  // Loss over the whole set, metrics and speed; throws if the set is empty or has no labels.
  Evaluation evaluate(const text::Examples& set) const;
  // Whether evaluate() keeps the logits of all rows.
  bool keeps_logits() const { return compute_metrics_ != nullptr; }

 private:
  void run(const text::Examples& set,
           const std::function<void(const Tensor& logits, const std::vector<int64_t>& rows,
                                    const Tensor& labels)>& each_batch) const;

  const Model& model_;
  int64_t batch_size_;
  ComputeMetrics compute_metrics_;
  std::optional<DType> autocast_;
  double label_smoothing_;
};

}  // namespace minim::train
