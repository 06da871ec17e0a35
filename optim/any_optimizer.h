#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/safetensors_header.h"
#include "core/tensor.h"
#include "optim/fields.h"
#include "optim/parameter_group.h"
#include "optim/state_size.h"

namespace minim::optim {

// What to do where a state was written under other options than the optimizer has.
enum class OtherOptions {
  refuse,    // an Error names them: the run would not continue as it was
  keep_mine  // go on with the optimizer's own, such as a new learning rate
};

// An optimizer whose rule is chosen at run time; what a training loop needs of it. The typed state
// is in Optimizer<Rule>.
class AnyOptimizer {
 public:
  virtual ~AnyOptimizer() = default;
  AnyOptimizer(const AnyOptimizer&) = delete;
  AnyOptimizer& operator=(const AnyOptimizer&) = delete;

  // The rule's name: "adamw".
  virtual std::string_view name() const = 0;

  // Updates every parameter that has a gradient at its group's learning rate. Parameters without
  // one are left alone: no state, no decay, and their step does not advance.
  void step() { update_all(std::nullopt, 1.0); }
  // The same at this learning rate, as a schedule gives it; a group with a rate of its own keeps
  // its ratio to the optimizer's. Gradients are multiplied by `gradient_scale` as they are read.
  void step(double lr, double gradient_scale = 1.0) { update_all(lr, gradient_scale); }
  // Drops all gradients.
  void zero_grad();

  // Adds parameters, also between steps. Throws, and adds none, where the group is empty, or one
  // of them is already in the optimizer, under this name or another.
  virtual void add_group(ParameterGroup group) = 0;
  const std::vector<ParameterGroup>& groups() const { return groups_; }
  // Options of a group as name and value, in the order of its Options.
  virtual std::vector<std::pair<std::string, std::string>> options_of(size_t group) const = 0;

  // The state that a step with gradients for all parameters that require one leaves behind.
  StateSize state_size() const;

  // State by "<parameter>.<key>", aliasing the optimizer's memory; numbers as scalars of i64 or
  // f64.
  NamedTensors state_dict() const;
  // The keys and values of one parameter's state; empty before its first gradient.
  NamedTensors state_dict(std::string_view parameter) const;
  // What the tensors alone do not say: optimizer, version, and the options and names of each group.
  Metadata metadata() const;
  // Copies a state in, so that the next step is the one that would have followed. Throws, and
  // changes nothing, where optimizer, names, shapes, dtypes or options do not fit.
  void load_state_dict(const NamedTensors& tensors, const Metadata& metadata,
                       OtherOptions other = OtherOptions::refuse);

 protected:
  struct Parameter {
    std::string name;
    Tensor tensor;
    size_t group;
  };
  using UseFields = std::function<void(const StateFields&)>;

  AnyOptimizer() = default;

  // Checks the group and appends it and its parameters.
  void append(ParameterGroup group);
  // Throws, naming similar ones, if there is no parameter of that name.
  size_t index_of(std::string_view parameter) const;
  const std::vector<Parameter>& parameters() const { return parameters_; }
  ParameterSpec spec_of(size_t parameter) const;

  virtual void update_all(std::optional<double> lr, double gradient_scale) = 0;
  virtual bool has_state(size_t parameter) const = 0;
  // Lists the fields of the parameter's state, or of a blank one where there is none.
  virtual void list_state(size_t parameter, const UseFields& use) const = 0;
  // Puts a new state, which `fill` completes, in the place of the old one.
  virtual void replace_state(size_t parameter, const UseFields& fill) = 0;
  virtual void drop_state(size_t parameter) = 0;
  // Lists the tensors that all parameters share; most rules have none.
  virtual void list_shared(const UseFields& use) const = 0;

 private:
  std::vector<ParameterGroup> groups_;
  std::vector<Parameter> parameters_;
  std::unordered_map<std::string, size_t> by_name_;
};

// Gives each tensor among the fields its memory, zeroed and counted as optimizer state.
void allocate_state(const StateFields& fields);

// The same as optimizer.state_size().
StateSize state_size(const AnyOptimizer& optimizer);

}  // namespace minim::optim
