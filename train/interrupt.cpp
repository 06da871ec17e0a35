#include "train/interrupt.h"

#include <csignal>
#include <cstring>
#include <unistd.h>

namespace minim::train {

namespace {

constexpr int signals[] = {SIGINT, SIGTERM};
using Handler = void (*)(int);

volatile std::sig_atomic_t arrived = 0;
Handler before[] = {SIG_DFL, SIG_DFL};

extern "C" void note_signal(int signal) {
  arrived = signal;
  for (const int each : signals)
    std::signal(each, SIG_DFL);
  constexpr char text[] =
      "\nfinishing this update and saving a checkpoint; a second signal ends the run at once\n";
  // A message that cannot be shown is no reason to fail.
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text, std::strlen(text));
}

}  // namespace

InterruptCallback::InterruptCallback() {
  arrived = 0;
  for (size_t i = 0; i < std::size(signals); ++i) {
    before[i] = std::signal(signals[i], note_signal);
    if (before[i] == SIG_IGN) std::signal(signals[i], SIG_IGN);
  }
}

InterruptCallback::~InterruptCallback() {
  for (size_t i = 0; i < std::size(signals); ++i)
    std::signal(signals[i], before[i]);
}

void InterruptCallback::control(const TrainerState&, TrainerControl& control) {
  control.should_interrupt = control.should_interrupt || arrived != 0;
}

int InterruptCallback::signal() {
  return arrived;
}

}  // namespace minim::train
