#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/checkpoint.h"
#include "optim/quantize.h"
#include "optim/state_size.h"

namespace minim::optim {

// The state file of an optimizer (optim/state_file.h), opened without the optimizer, its model or
// their memory: the file is mapped, and a tensor's bytes are read when it is looked at.
class SavedState {
 public:
  // Throws, naming the file, for one that no optimizer wrote or whose parts contradict each other.
  explicit SavedState(const std::string& path);

  struct Group {
    std::vector<std::pair<std::string, std::string>> options;  // by name
    std::vector<std::string> parameters;
  };
  struct Parameter {
    std::string name;
    size_t group = 0;
    std::optional<Shape> shape = {};  // where the state tells it; not of a parameter without state
    std::vector<StateSize::Entry> tensors = {};                // in the order of their keys
    std::vector<std::pair<std::string, double>> numbers = {};  // step counters and the like
  };

  const std::string& path() const { return file_.source(); }
  const std::string& optimizer() const { return optimizer_; }
  const std::vector<Group>& groups() const { return groups_; }
  // In the order of the groups.
  const std::vector<Parameter>& parameters() const { return parameters_; }
  // The value of an option for a parameter; "" where there is none of that name.
  std::string_view option(const Parameter& parameter, std::string_view key) const;

  // The parameter of that name, or all that match it as a shell pattern ("*.q_lin.weight"), or all
  // that end with it. Throws, naming similar ones, if there are none.
  std::vector<const Parameter*> find(std::string_view name) const;

  // A tensor of the state as it is stored; throws where there is none.
  Tensor tensor(const Parameter& parameter, std::string_view key) const;
  // Whether a tensor holds codes of an 8-bit optimizer: has scales "<key>_absmax" beside it.
  bool is_quantized(const Parameter& parameter, std::string_view key) const;
  // Such a tensor with its scales, and what the codes stand for.
  Quantized quantized(const Parameter& parameter, std::string_view key) const;
  const CodeMap& code_map_of(const Parameter& parameter, std::string_view key) const;
  // The same as numbers: codes decoded, all else as it is stored.
  Tensor values(const Parameter& parameter, std::string_view key) const;
  // The second moment of each weight, which Adafactor keeps as means of rows and columns alone:
  // row * column / mean(row). Undefined for a parameter that has no such factors.
  Tensor factored_second_moment(const Parameter& parameter) const;

  // All tensors of the file; and those that they have in common in memory, such as code tables.
  const StateSize& size() const { return size_; }

 private:
  void read_groups();
  void read_tensors();
  bool keeps_codes() const;

  Checkpoint file_;
  std::string optimizer_;
  std::vector<Group> groups_;
  std::vector<Parameter> parameters_;
  StateSize size_;
};

}  // namespace minim::optim
