#pragma once

#include <concepts>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/tensor.h"

namespace minim::optim {

// Parameters that an optimizer treats alike. Values left out are those of the optimizer's options.
struct ParameterGroup {
  NamedTensors parameters;  // with full names, as model.parameters() gives them
  std::optional<double> lr = {};
  std::optional<double> weight_decay = {};
};

// Whether weight decay applies to a parameter of that name: not to biases, and to nothing that
// normalises. Hugging Face's rule (Trainer.get_decay_parameter_names): the name, in lower case, has
// no "bias", "layernorm" or "rmsnorm" anywhere, and no component that is "norm" or ends in "_norm".
bool is_decayed(std::string_view name);

// Two groups, the decayed parameters first with weight_decay = decay, then the others with 0. A
// group that would be empty is left out.
std::vector<ParameterGroup> decay_groups(const NamedTensors& parameters, double decay);

// The same for a model, or anything else whose parameters() are NamedTensors.
template <class Model>
requires requires(const Model& model) {
  { model.parameters() } -> std::convertible_to<NamedTensors>;
}
std::vector<ParameterGroup> decay_groups(const Model& model, double decay) {
  return decay_groups(NamedTensors(model.parameters()), decay);
}

// For reading: per group one line with its values, tensors and elements, then a line per parameter
// with name and shape.
std::string describe(std::span<const ParameterGroup> groups);

}  // namespace minim::optim
