#include "optim/any_optimizer.h"

#include <unordered_set>

#include "optim/similar_names.h"

namespace minim::optim {

namespace {

// A number of the state as a scalar tensor, so that a file holds nothing but tensors.
Tensor as_tensor(const StateField& field) {
  if (const auto* tensor = std::get_if<Tensor*>(&field.value)) return **tensor;
  if (const auto* counter = std::get_if<int64_t*>(&field.value))
    return Tensor::from({**counter}, {});
  return Tensor::from({**std::get_if<double*>(&field.value)}, {});
}

}  // namespace

void AnyOptimizer::zero_grad() {
  for (Parameter& parameter : parameters_)
    parameter.tensor.set_grad(Tensor());
}

void AnyOptimizer::append(ParameterGroup group) {
  check(!group.parameters.empty(), "{}: group {} holds no parameters", name(), groups_.size());
  std::unordered_map<const void*, std::string_view> names;
  for (const Parameter& parameter : parameters_)
    names.emplace(parameter.tensor.impl().get(), parameter.name);
  std::unordered_set<std::string_view> seen;
  const NamedTensor& first = groups_.empty() ? group.parameters[0] : groups_[0].parameters[0];
  for (const auto& [own, tensor] : group.parameters) {
    check(tensor.defined(), "{}: parameter {} is undefined", name(), own);
    check(tensor.device() == first.tensor.device(),
          "{}: parameter {} is on {}, {} on {}; use an optimizer for each device", name(), own,
          tensor.device(), first.name, first.tensor.device());
    check(is_floating(tensor.dtype()), "{}: parameter {} is {}, must be f32, f64, f16 or bf16",
          name(), own, name_of(tensor.dtype()));
    check(tensor.is_contiguous(), "{}: parameter {} of shape {} has strides {}, must be contiguous",
          name(), own, tensor.shape(), tensor.strides());
    check(tensor.is_leaf(), "{}: parameter {} is the result of an operation, must be a leaf",
          name(), own);
    if (const auto found = by_name_.find(own); found != by_name_.end())
      fail("{}: parameter {} is in group {} already", name(), own,
           parameters_[found->second].group);
    check(seen.insert(own).second, "{}: parameter {} is twice in group {}", name(), own,
          groups_.size());
    const auto [place, is_new] = names.emplace(tensor.impl().get(), own);
    check(is_new, "{}: parameters {} and {} are one tensor; give it under one name", name(),
          place->second, own);
  }
  for (const auto& [own, tensor] : group.parameters) {
    by_name_.emplace(own, parameters_.size());
    parameters_.push_back({own, tensor, groups_.size(), tensor.device()});
  }
  change_layout();
  groups_.push_back(std::move(group));
}

size_t AnyOptimizer::index_of(std::string_view parameter) const {
  const auto found = by_name_.find(std::string(parameter));
  if (found != by_name_.end()) return found->second;
  std::vector<std::string_view> names;
  for (const Parameter& own : parameters_)
    names.push_back(own.name);
  fail("{}: none of the {} parameters is named {}{}", name(), parameters_.size(), parameter,
       similar_names(parameter, names));
}

ParameterSpec AnyOptimizer::spec_of(size_t parameter) const {
  const Parameter& own = parameters_[parameter];
  return {own.name, own.tensor.shape(), own.tensor.dtype()};
}

StateSize AnyOptimizer::state_size() const {
  StateSize size;
  bool any = false;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (!parameters_[i].tensor.requires_grad() && !has_state(i)) continue;
    if (!any) list_shared([&](const StateFields& fields) { size.add("", fields); });
    any = true;
    list_state(i, [&](const StateFields& fields) { size.add(parameters_[i].name, fields); });
  }
  return size;
}

NamedTensors AnyOptimizer::state_dict(std::string_view parameter) const {
  NamedTensors tensors;
  const size_t i = index_of(parameter);
  if (!has_state(i)) return tensors;
  const memory::Scope scope(memory::Category::data);
  list_state(i, [&](const StateFields& fields) {
    for (const StateField& field : fields)
      tensors.push_back({std::string(field.key), as_tensor(field)});
  });
  return tensors;
}

NamedTensors AnyOptimizer::state_dict() const {
  NamedTensors all;
  for (const Parameter& parameter : parameters_)
    for (NamedTensor& entry : state_dict(parameter.name))
      all.push_back({parameter.name + "." + entry.name, std::move(entry.tensor)});
  return all;
}

void allocate_state(const StateFields& fields, Device device) {
  const memory::Scope scope(memory::Category::optimizer_state);
  for (const StateField& field : fields)
    if (Tensor* const* tensor = std::get_if<Tensor*>(&field.value))
      **tensor = Tensor::zeros(field.shape, field.dtype, device);
}

StateSize state_size(const AnyOptimizer& optimizer) {
  return optimizer.state_size();
}

}  // namespace minim::optim
