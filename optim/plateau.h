#pragma once

#include <cstdint>
#include <limits>

namespace minim::optim {

struct PlateauOptions {
  double lr = 1e-3;
  double factor = 0.1;      // what the rate is multiplied by
  int64_t patience = 10;    // evaluations without improvement that are let pass
  double threshold = 1e-4;  // an improvement is better than the best by more than this fraction
  int64_t cooldown = 0;     // evaluations after a reduction that do not count
  double min_lr = 0;
  double eps = 1e-8;  // reductions smaller than this are not made
  bool greater_is_better = false;
};

// Hugging Face's "reduce_lr_on_plateau" (torch.optim.lr_scheduler.ReduceLROnPlateau): the one
// schedule that depends on what was measured and not on the step alone.
class ReduceLrOnPlateau {
 public:
  // Throws for a factor outside (0, 1) and negative values.
  explicit ReduceLrOnPlateau(const PlateauOptions& options);

  // The rate for the next step.
  double lr() const { return lr_; }
  // Takes the metric of an evaluation. NaN is no improvement.
  void observe(double metric);

  // All that an exact resume needs beside the options.
  struct State {
    double lr;
    double best;
    int64_t bad_evaluations = 0, cooldown = 0;
  };
  State state() const { return {lr_, best_, bad_evaluations_, cooldown_}; }
  void set_state(const State& state);

 private:
  PlateauOptions options_;
  double lr_, best_;
  int64_t bad_evaluations_ = 0, cooldown_ = 0;
};

}  // namespace minim::optim
