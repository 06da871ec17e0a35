#pragma once

#include <cstdint>
#include <cstdio>
#include <string>

#include "train/callback.h"

namespace minim::train {

// Shows where a run stands: one line that is drawn again and again on a terminal, and a plain line
// now and then where the output is none. Evaluations are printed in Hugging Face's words.
class ProgressCallback : public TrainerCallback {
 public:
  // Progress and warnings go to `progress`, evaluations to `results`. `redraw` says whether lines
  // are redrawn.
  ProgressCallback(std::FILE* progress, std::FILE* results, bool redraw);
  // Erases a line that is still shown.
  ~ProgressCallback() override;
  ProgressCallback(const ProgressCallback&) = delete;
  ProgressCallback& operator=(const ProgressCallback&) = delete;

  void on_train_begin(const TrainerState& state) override;
  void on_step_end(const TrainerState& state) override;
  void on_evaluate(const TrainerState& state, const Metrics& metrics) override;
  void on_warning(const TrainerState& state, const std::string& sentence) override;
  void on_train_end(const TrainerState& state) override;

 private:
  void draw(const TrainerState& state);
  void erase();

  std::FILE* progress_;
  std::FILE* results_;
  bool redraw_;
  bool shown_ = false;   // a line that can be redrawn is on the terminal
  double drawn_at_ = 0;  // seconds of training
};

// Where it is longer than `columns`, parts are left out, the least important first, and the rest is
// cut. There are no colours in it, so that NO_COLOR asks for nothing more.
// "epoch 2.31/20  step 723/6260  loss 1.8313  lr 9.7e-04  grad 1.42  41.3k tok/s  state 5.1 MiB
// peak 63 MiB  1:12 left"
std::string progress_line(const TrainerState& state, size_t columns = SIZE_MAX);

// Whether a stream is a terminal on which lines can be redrawn.
bool is_terminal(std::FILE* stream);

}  // namespace minim::train
