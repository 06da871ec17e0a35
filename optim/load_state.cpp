#include <charconv>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include "core/printable.h"
#include "optim/any_optimizer.h"

// The two halves of a state that travels: what an optimizer says of itself, and how a state that
// says it is checked before any of it is used.
namespace minim::optim {

namespace {

constexpr std::string_view version = "1";

// What the metadata says of one group.
struct SavedGroup {
  std::string prefix;  // "group.0."
  std::unordered_set<std::string_view> parameters;
};

std::string_view entry(std::string_view optimizer, const Metadata& metadata,
                       const std::string& key) {
  const auto found = metadata.find(key);
  check(found != metadata.end(),
        "{}: the state's metadata has no \"{}\"; it was not written by an optimizer", optimizer,
        key);
  return found->second;
}

std::vector<SavedGroup> saved_groups(std::string_view optimizer, const Metadata& metadata) {
  const std::string_view text = entry(optimizer, metadata, "groups");
  size_t count = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  check(error == std::errc() && end == text.data() + text.size() && count <= metadata.size(),
        "{}: the state's metadata has groups = {}, which its other entries do not bear out",
        optimizer, printable(text));
  std::vector<SavedGroup> groups(count);
  for (size_t i = 0; i < count; ++i) {
    groups[i].prefix = fmt::format("group.{}.", i);
    std::string_view names = entry(optimizer, metadata, groups[i].prefix + "parameters");
    while (!names.empty()) {
      const size_t cut = std::min(names.find('\n'), names.size());
      groups[i].parameters.insert(names.substr(0, cut));
      names.remove_prefix(std::min(cut + 1, names.size()));
    }
  }
  return groups;
}

}  // namespace

Metadata AnyOptimizer::metadata() const {
  Metadata metadata = {{"format", "minim-optimizer"},
                       {"version", std::string(version)},
                       {"optimizer", std::string(name())},
                       {"groups", std::to_string(groups_.size())}};
  for (size_t i = 0; i < groups_.size(); ++i) {
    const std::string prefix = fmt::format("group.{}.", i);
    std::string names;
    for (const NamedTensor& parameter : groups_[i].parameters)
      names += (names.empty() ? "" : "\n") + parameter.name;
    metadata[prefix + "parameters"] = names;
    for (const auto& [key, value] : options_of(i))
      metadata[prefix + key] = value;
  }
  return metadata;
}

void AnyOptimizer::load_state_dict(const NamedTensors& tensors, const Metadata& metadata,
                                   OtherOptions other) {
  settle();
  const std::string_view writer = entry(name(), metadata, "optimizer");
  check(writer == name(), "{}: the state was written by {}", name(), printable(writer));
  const std::string_view its_version = entry(name(), metadata, "version");
  check(its_version == version, "{}: the state has version {}, must be {}", name(),
        printable(its_version), version);

  // Groups may be cut otherwise than they were; options are compared parameter by parameter.
  const std::vector<SavedGroup> saved = saved_groups(name(), metadata);
  size_t named = 0;
  for (const SavedGroup& group : saved)
    for (const std::string_view parameter : group.parameters) {
      check(by_name_.contains(std::string(parameter)),
            "{}: the state has parameter {}, the optimizer has not", name(), printable(parameter));
      ++named;
    }
  check(named <= parameters_.size(), "{}: the state lists a parameter in two groups", name());
  for (const Parameter& own : parameters_) {
    const SavedGroup* group = nullptr;
    for (const SavedGroup& candidate : saved)
      if (candidate.parameters.contains(own.name)) group = &candidate;
    check(group != nullptr, "{}: the state has no parameter {}", name(), own.name);
    if (other == OtherOptions::keep_mine) continue;
    for (const auto& [key, value] : options_of(own.group)) {
      const std::string_view theirs = entry(name(), metadata, group->prefix + key);
      check(theirs == value,
            "{}: {} is {} for {}, and was {} when the state was written; set it so, or load with "
            "keep_mine",
            name(), key, value, own.name, printable(theirs));
    }
  }

  std::unordered_map<std::string_view, Tensor> given;
  for (const NamedTensor& tensor : tensors)
    given.emplace(tensor.name, tensor.tensor);
  std::vector<bool> present(parameters_.size());
  for (size_t i = 0; i < parameters_.size(); ++i)
    list_state(i, [&](const StateFields& fields) {
      std::string missing;
      for (const StateField& field : fields) {
        const std::string key = fmt::format("{}.{}", parameters_[i].name, field.key);
        const auto found = given.find(key);
        if (found == given.end()) {
          missing = key;
          continue;
        }
        const Tensor& tensor = found->second;
        check(tensor.shape() == field.shape && tensor.dtype() == field.dtype,
              "{}: the state's {} is {} {}, must be {} {}", name(), key, name_of(tensor.dtype()),
              tensor.shape(), name_of(field.dtype), field.shape);
        if (std::holds_alternative<int64_t*>(field.value)) {
          const int64_t counter = tensor.data<int64_t>()[0];
          check(counter >= 0, "{}: the state's {} is {}, must not be negative", name(), key,
                counter);
          // Beyond 2^53 a double, in which rules count on, no longer tells steps apart.
          check(counter <= int64_t(1) << 53, "{}: the state's {} is {}, must be at most 2^53",
                name(), key, counter);
        }
        present[i] = true;
        given.erase(found);
      }
      check(missing.empty() || !present[i], "{}: the state has no {}", name(), missing);
    });
  for (const NamedTensor& tensor : tensors)
    check(!given.contains(tensor.name),
          "{}: the state has {}, which {} with these options does not keep", name(),
          printable(tensor.name), name());

  for (const NamedTensor& tensor : tensors)
    given.emplace(tensor.name, tensor.tensor);
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (!present[i]) {
      drop_state(i);
      continue;
    }
    replace_state(i, [&](const StateFields& fields) {
      allocate_state(fields, parameters_[i].tensor.device());
      for (const StateField& field : fields) {
        const Tensor& from = given.at(fmt::format("{}.{}", parameters_[i].name, field.key));
        if (Tensor* const* tensor = std::get_if<Tensor*>(&field.value))
          copy(**tensor, from);
        else if (int64_t* const* counter = std::get_if<int64_t*>(&field.value))
          **counter = from.data<int64_t>()[0];
        else
          **std::get_if<double*>(&field.value) = from.data<double>()[0];
      }
    });
  }
}

}  // namespace minim::optim
