#pragma once

#include <string_view>

#include "optim/schedule.h"

namespace minim::train {

// Sets the fields of a schedule's options that lr_scheduler_kwargs names, such as
// "num_cycles=2,min_lr=1e-6" or, as Hugging Face's commands have it, {"num_cycles": 2}. Throws for
// a name that is none, listing those there are, and for what is no value of it.
void read_scheduler_kwargs(std::string_view text, optim::ScheduleOptions& options);

}  // namespace minim::train
