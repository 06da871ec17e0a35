#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "optim/any_optimizer.h"

namespace minim::optim {

// The optimizer options of a command line, with the names and defaults of Hugging Face's
// TrainingArguments.
struct OptimizerArguments {
  double learning_rate = 5e-5;
  double adam_beta1 = 0.9, adam_beta2 = 0.999, adam_epsilon = 1e-8;
  double weight_decay = 0;
  std::string optim_args = {};  // every other field of the rule's Options: "amsgrad=True"
};

// Names that make_optimizer() knows, without aliases.
std::vector<std::string_view> optimizer_names();

// The optimizer of that name ("adamw"; Hugging Face's "adamw_torch" and "adamw_torch_fused" are the
// same). "adafactor" takes the rate given, with scale_parameter and relative_step off, as their
// Trainer has it; with relative_step=True among optim_args the learning_rate must be 0, as none is
// taken. Throws for a name that is none, listing those there are, and for optim_args that
// name no option, one that has an argument of its own, or no value of it.
std::unique_ptr<AnyOptimizer> make_optimizer(std::string_view name,
                                             std::vector<ParameterGroup> groups,
                                             const OptimizerArguments& arguments);

}  // namespace minim::optim
