#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace minim::optim {

// Learning rate as a pure function of the number of updates made so far: update s, counted from 0,
// uses schedule(s). Nothing has to be saved to resume one. With warm-up the first rate is 0.
//
//   const Schedule rate = linear_schedule({.lr = 5e-5, .warmup_steps = 100, .total_steps = 900});
//   optimizer.step(rate(step++));
//
// All are Hugging Face's (transformers.get_scheduler), to the last bit of their double arithmetic.
using Schedule = std::function<double(int64_t step)>;

// Hugging Face's names: "constant", "constant_with_warmup", "linear", "cosine",
// "cosine_with_restarts", "polynomial", "inverse_sqrt", "cosine_with_min_lr",
// "cosine_warmup_with_min_lr" and "warmup_stable_decay". The eleventh, "reduce_lr_on_plateau",
// depends on a metric: see optim/plateau.h.
std::span<const std::string_view> schedule_names();

// Options of all schedules. Those left out have the value in brackets; those that a schedule does
// not have must be left out.
struct ScheduleOptions {
  double lr = 1e-3;                              // the rate after warm-up
  int64_t warmup_steps = 0;                      // not for constant
  std::optional<int64_t> total_steps = {};       // must be given to those that fall to an end
  std::optional<double> num_cycles = {};         // waves of the cosine (0.5), or restarts (1)
  std::optional<double> power = {};              // polynomial (1)
  std::optional<double> lr_end = {};             // polynomial: the rate at the end (1e-7)
  std::optional<double> timescale = {};          // inverse_sqrt (warmup_steps, or 10000 without)
  std::optional<double> min_lr = {};             // *_with_min_lr: the rate at the end, or instead
  std::optional<double> min_lr_rate = {};        // its fraction of lr
  std::optional<double> warmup_lr_rate = {};     // cosine_warmup_with_min_lr: first rate's fraction
  std::optional<int64_t> num_decay_steps = {};   // warmup_stable_decay: must be given
  std::optional<int64_t> num_stable_steps = {};  // warmup_stable_decay (what the others leave)
  std::optional<std::string> warmup_type = {};   // warmup_stable_decay: (linear), cosine, 1-sqrt
  std::optional<std::string> decay_type = {};    // warmup_stable_decay: linear, (cosine), 1-sqrt
  std::optional<double> min_lr_ratio = {};       // warmup_stable_decay: fraction at both ends (0)
};

// The schedule of that name. Throws for a name that is none, listing those there are, for values
// that make no sense, and for options that the schedule does not have.
Schedule make_schedule(std::string_view name, const ScheduleOptions& options);

// make_schedule() of the name before "_schedule".
Schedule constant_schedule(const ScheduleOptions& options);
Schedule constant_with_warmup_schedule(const ScheduleOptions& options);
// Rises to lr over warmup_steps, then falls to 0 at total_steps.
Schedule linear_schedule(const ScheduleOptions& options);
// Rises to lr over warmup_steps, then follows the cosine to 0 at total_steps.
Schedule cosine_schedule(const ScheduleOptions& options);

}  // namespace minim::optim
