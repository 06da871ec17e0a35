#pragma once

#include "train/callback.h"
#include "train/training_arguments.h"

namespace minim::train {

// Ends a run when metric_for_best_model has not become better than its best by more than a
// threshold in `patience` evaluations in a row: Hugging Face's EarlyStoppingCallback.
class EarlyStoppingCallback : public TrainerCallback {
 public:
  // Throws unless the arguments have evaluations and a metric_for_best_model.
  explicit EarlyStoppingCallback(const TrainingArguments& arguments, int64_t patience = 1,
                                 double threshold = 0.0);

  void on_evaluate(const TrainerState& state, const Metrics& metrics) override;
  void control(const TrainerState& state, TrainerControl& control) override;

  std::string name() const override { return "EarlyStoppingCallback"; }
  Metrics attributes() const override;
  void restore(const Metrics& attributes) override;

 private:
  TrainingArguments arguments_;
  int64_t patience_;
  double threshold_;
  int64_t counter_ = 0;  // evaluations since the last that was better
};

}  // namespace minim::train
