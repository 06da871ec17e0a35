#pragma once

#include <string>

#include "optim/any_optimizer.h"

namespace minim::optim {

// Writes an optimizer's state as one safetensors file that says by itself which optimizer, options
// and parameters it belongs to: tensors "<parameter>.exp_avg", numbers as scalars
// "<parameter>.step". A file that exists is replaced as a whole or not at all.
void save_state(const AnyOptimizer& optimizer, const std::string& path);

// Copies the state of such a file into an optimizer over the same parameters, which then goes on
// bit for bit as the saved one would have. Throws, naming the file, and changes nothing where it
// does not fit.
void load_state(AnyOptimizer& optimizer, const std::string& path,
                OtherOptions other = OtherOptions::refuse);

}  // namespace minim::optim
