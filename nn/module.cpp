#include "nn/module.h"

#include <fnmatch.h>
#include <unordered_map>

#include "autograd/set_data.h"

namespace minim::nn {

NamedTensors Module::state_dict() const {
  NamedTensors all = parameters();
  for (const NamedTensor& buffer : buffers())
    all.push_back(buffer);
  return all;
}

void Module::load_state_dict(const NamedTensors& values) const {
  std::unordered_map<std::string, Tensor> given;
  for (const NamedTensor& value : values)
    check(given.emplace(value.name, value.tensor).second, "load_state_dict: {} is given twice",
          value.name);

  std::vector<std::string> missing, misshapen, unexpected;
  std::vector<std::pair<Tensor, Tensor>> copies;
  for (const NamedTensor& own : state_dict()) {
    const auto found = given.find(own.name);
    if (found == given.end()) {
      missing.push_back(own.name);
      continue;
    }
    if (found->second.shape() != own.tensor.shape())
      misshapen.push_back(
          fmt::format("{} is {}, must be {}", own.name, found->second.shape(), own.tensor.shape()));
    else
      copies.emplace_back(own.tensor, found->second);
    given.erase(found);
  }
  for (const NamedTensor& value : values)
    if (given.contains(value.name)) unexpected.push_back(value.name);

  std::string report;
  const auto add = [&report](const std::vector<std::string>& names, std::string_view kind) {
    if (names.empty()) return;
    if (!report.empty()) report += ", ";
    report += fmt::format("{} {} (", names.size(), kind);
    for (size_t i = 0; i < names.size(); ++i)
      report += (i == 0 ? "" : "; ") + names[i];
    report += ")";
  };
  add(missing, "missing");
  add(unexpected, "unexpected");
  add(misshapen, "of another shape");
  check(report.empty(), "load_state_dict: {}", report);
  for (const auto& [to, from] : copies)
    copy(to, from);
}

int64_t Module::parameter_count() const {
  int64_t count = 0;
  for (const NamedTensor& parameter : parameters())
    count += parameter.tensor.numel();
  return count;
}

void Module::zero_grad() const {
  for (NamedTensor& parameter : parameters())
    parameter.tensor.set_grad(Tensor());
}

void Module::to(Device device) const {
  for (NamedTensor& own : state_dict()) {
    if (own.tensor.device() == device) continue;
    const memory::Scope scope(memory::Category::weights);
    set_data(own.tensor, own.tensor.to(device));
  }
}

Device Module::device() const {
  const NamedTensors all = parameters();
  return all.empty() ? Device::cpu() : all[0].tensor.device();
}

int64_t Module::freeze(const std::string& pattern) const {
  int64_t frozen = 0;
  for (NamedTensor& parameter : parameters()) {
    if (fnmatch(pattern.c_str(), parameter.name.c_str(), 0) != 0) continue;
    parameter.tensor.set_grad(Tensor());
    parameter.tensor.set_requires_grad(false);
    ++frozen;
  }
  check(frozen > 0, "freeze: no parameter's name matches \"{}\"", pattern);
  return frozen;
}

}  // namespace minim::nn
