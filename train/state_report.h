#pragma once

#include <span>
#include <string>

#include "optim/saved_state.h"

// An optimizer's state for people and for programs.
namespace minim::train {

// Optimizer, options, and a table of all parameters: shape, step, tensors of state, elements and
// bytes; then the sums by kind of tensor.
std::string state_table(const optim::SavedState& state);

// The state of one parameter, tensor by tensor: statistics, a histogram in a line, first and last
// values; of 8-bit codes their use, their scales and how far off they can be; of Adafactor's
// factors the second moment that they stand for.
std::string parameter_report(const optim::SavedState& state,
                             const optim::SavedState::Parameter& parameter);

// What state_table() says as one JSON object, and of the parameters given what parameter_report()
// says.
std::string state_json(const optim::SavedState& state,
                       std::span<const optim::SavedState::Parameter* const> detailed = {});

// A tensor as PyTorch prints it: of each dimension longer than six the first and last three.
std::string printed_values(const Tensor& tensor);

}  // namespace minim::train
