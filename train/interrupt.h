#pragma once

#include "core/error.h"
#include "train/callback.h"

namespace minim::train {

// A run that was asked to end early; what() names the checkpoint from which it can go on.
class Interrupted : public Error {
 public:
  using Error::Error;
};

// While it lives, the first SIGINT or SIGTERM makes the Trainer finish the update that it is at,
// write a checkpoint and throw Interrupted; the second ends the process at once. A signal that was
// ignored before stays so. One of them at a time.
class InterruptCallback : public TrainerCallback {
 public:
  InterruptCallback();
  // Puts back what the signals did before.
  ~InterruptCallback() override;
  InterruptCallback(const InterruptCallback&) = delete;
  InterruptCallback& operator=(const InterruptCallback&) = delete;

  void control(const TrainerState& state, TrainerControl& control) override;
  // The signal that came, or 0.
  static int signal();
};

}  // namespace minim::train
