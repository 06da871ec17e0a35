#include "train/progress.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string_view>
#include <sys/ioctl.h>
#include <unistd.h>
#include <vector>

#include <fmt/format.h>

#include "core/memory.h"

namespace minim::train {

namespace {

// Seconds of training between two drawings.
constexpr double redraw_every = 0.2, print_every = 10;

std::string clock_text(double seconds) {
  const int64_t s = std::llround(seconds);
  if (s >= 3600) return fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60);
  return fmt::format("{}:{:02}", s / 60, s % 60);
}

std::string mebibytes(int64_t bytes) {
  const double value = double(bytes) / 0x1p20;
  return fmt::format("{:.{}f} MiB", value, value < 100 ? 1 : 0);
}

// Columns of the terminal, so that a line never wraps.
size_t terminal_width(std::FILE* stream) {
  winsize size{};
  if (ioctl(fileno(stream), TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
  return size.ws_col;
}

}  // namespace

bool is_terminal(std::FILE* stream) {
  const char* kind = std::getenv("TERM");
  return isatty(fileno(stream)) != 0 && kind != nullptr && std::string_view(kind) != "dumb";
}

std::string progress_line(const TrainerState& state, size_t columns) {
  const double left = state.global_step > 0 ? state.seconds / double(state.global_step) *
                                                  double(state.max_steps - state.global_step)
                                            : 0;
  struct Part {
    int rank;  // the highest goes first
    std::string text;
  };
  std::vector<Part> parts = {
      {3, fmt::format("epoch {:.2f}/{:g}", state.epoch, state.num_train_epochs)},
      {0, fmt::format("step {}/{}", state.global_step, state.max_steps)},
      {1, fmt::format("loss {:.4f}", state.loss)},
      {5, fmt::format("lr {:.1e}", state.learning_rate)},
      {6, fmt::format("grad {:.2f}", state.grad_norm)},
      {4, fmt::format("{:.1f}k tok/s", state.tokens_per_second / 1000)},
      {8, fmt::format("state {}", mebibytes(state.optimizer_state_bytes))},
      {7, fmt::format("peak {}", mebibytes(memory::peak(state.device)))},
      {2, fmt::format("{} left", clock_text(left))}};
  const auto line_of = [&parts] {
    std::string line;
    for (const Part& part : parts)
      line += (line.empty() ? "" : "  ") + part.text;
    return line;
  };
  std::string line = line_of();
  while (line.size() > columns && parts.size() > 1) {
    parts.erase(std::ranges::max_element(parts, {}, &Part::rank));
    line = line_of();
  }
  line.resize(std::min(line.size(), columns));
  return line;
}

ProgressCallback::ProgressCallback(std::FILE* progress, std::FILE* results, bool redraw)
    : progress_(progress), results_(results), redraw_(redraw) {}

ProgressCallback::~ProgressCallback() {
  erase();
}

// So that what follows, such as the message of a failure, has a line of its own.
void ProgressCallback::erase() {
  if (!shown_) return;
  fmt::print(progress_, "\r\x1b[K");
  std::fflush(progress_);
  shown_ = false;
}

void ProgressCallback::on_train_begin(const TrainerState& state) {
  drawn_at_ = state.seconds;
}

void ProgressCallback::draw(const TrainerState& state) {
  drawn_at_ = state.seconds;
  if (redraw_) {
    fmt::print(progress_, "\r\x1b[K{}", progress_line(state, terminal_width(progress_) - 1));
    shown_ = true;
  } else {
    fmt::print(progress_, "{}\n", progress_line(state));
  }
  std::fflush(progress_);
}

void ProgressCallback::on_step_end(const TrainerState& state) {
  if (state.seconds - drawn_at_ >= (redraw_ ? redraw_every : print_every)) draw(state);
}

void ProgressCallback::on_evaluate(const TrainerState& state, const Metrics& metrics) {
  draw(state);
  if (redraw_) {
    fmt::print(progress_, "\n");
    std::fflush(progress_);
    shown_ = false;
  }
  fmt::print(results_, "{}\n", format_metrics(metrics));
  std::fflush(results_);
}

void ProgressCallback::on_warning(const TrainerState&, const std::string& sentence) {
  erase();
  fmt::print(progress_, "warning: {}\n", sentence);
  std::fflush(progress_);
}

void ProgressCallback::on_train_end(const TrainerState&) {
  erase();
}

}  // namespace minim::train
