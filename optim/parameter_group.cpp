#include "optim/parameter_group.h"

#include <algorithm>
#include <cctype>
#include <utility>

namespace minim::optim {

bool is_decayed(std::string_view name) {
  std::string lower(name);
  std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return char(tolower(c)); });
  for (std::string_view part : {"bias", "layernorm", "rmsnorm"})
    if (lower.find(part) != std::string::npos) return false;
  for (size_t begin = 0; begin <= lower.size();) {
    const size_t end = std::min(lower.find('.', begin), lower.size());
    const std::string_view component = std::string_view(lower).substr(begin, end - begin);
    if (component == "norm" || component.ends_with("_norm")) return false;
    begin = end + 1;
  }
  return true;
}

std::vector<ParameterGroup> decay_groups(const NamedTensors& parameters, double decay) {
  ParameterGroup decayed{.parameters = {}, .weight_decay = decay};
  ParameterGroup others{.parameters = {}, .weight_decay = 0.0};
  for (const NamedTensor& parameter : parameters)
    (is_decayed(parameter.name) ? decayed : others).parameters.push_back(parameter);
  std::vector<ParameterGroup> groups;
  if (!decayed.parameters.empty()) groups.push_back(std::move(decayed));
  if (!others.parameters.empty()) groups.push_back(std::move(others));
  return groups;
}

std::string describe(std::span<const ParameterGroup> groups) {
  std::string text;
  for (size_t i = 0; i < groups.size(); ++i) {
    const ParameterGroup& group = groups[i];
    int64_t elements = 0;
    for (const auto& [name, tensor] : group.parameters)
      elements += tensor.numel();
    text += fmt::format("group {}", i);
    if (group.lr) text += fmt::format(", lr {}", *group.lr);
    if (group.weight_decay) text += fmt::format(", weight_decay {}", *group.weight_decay);
    text += fmt::format(": {} tensors, {} elements\n", group.parameters.size(), elements);
    for (const auto& [name, tensor] : group.parameters)
      text += fmt::format("  {} {}\n", name, tensor.shape());
  }
  return text;
}

}  // namespace minim::optim
