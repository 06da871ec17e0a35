#pragma once

#include <cmath>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "autograd/node.h"
#include "optim/any_optimizer.h"

// An optimizer is a rule: how one tensor is updated, as a struct like AdamWRule (optim/adamw.h).
// It has
//   name                                          "adamw", for messages and files
//   Options, State                                plain structs; Options has a member lr
//   list_options(Options&, OptionFields&)         the options by name
//   list_state(State&, const ParameterSpec&, const Options&, StateFields&)
//                                                 the state by name, with shapes and dtypes
//   validate(const Options&)                      throws for values that make no sense
//   update(const Update&, State&, const Options&) one step of one parameter
// where parameters share tensors such as a code table, shared_state(StateFields&), and where it may
// find its rate itself
//   finds_rate(const Options&)                    whether it does under these options
//   found_rate(const State&, const Options&)      the rate of the last update
// where numbers of its state are computed on the parameter's device
//   fetch(State&)                                 brings them to the host, which may wait
// and where all parameters on a device are to be updated by few launches (optim/step_elements.h)
//   batches = true                                update() adds to Update::launches if there are
namespace minim::optim {

// What update() gets of one parameter.
struct Update {
  std::string_view name;
  const Tensor& parameter;  // contiguous; written in place
  const Tensor& gradient;   // contiguous, of the parameter's shape and dtype; not written
  double gradient_scale;    // to be multiplied onto each gradient as it is read
  // For rules with `batches`, where the parameter is on a CUDA device; else null.
  cuda::LaunchList* launches = nullptr;     // collects the step's work instead of running it
  const double* gradient_factor = nullptr;  // on the device: one more factor, or null
  // Likewise: how many of the steps that the state has counted the device left out, or null.
  const int64_t* left_out = nullptr;
};

template <class Rule>
class Optimizer final : public AnyOptimizer {
 public:
  using Options = typename Rule::Options;
  using State = typename Rule::State;

  // Throws for options or groups that make no sense.
  explicit Optimizer(std::vector<ParameterGroup> groups, Options options = {})
      : options_(std::move(options)) {
    Rule::validate(options_);
    check(!groups.empty(), "{}: there are no parameters", Rule::name);
    for (ParameterGroup& group : groups)
      add_group(std::move(group));
  }
  explicit Optimizer(NamedTensors parameters, Options options = {})
      : Optimizer(one_group(std::move(parameters)), std::move(options)) {}

  std::string_view name() const override { return Rule::name; }
  using AnyOptimizer::add_group;
  void add_group(ParameterGroup group) override { add_group(std::move(group), options_); }
  // Options of its own for a group; the group's lr and weight_decay win over them.
  void add_group(ParameterGroup group, Options options);
  const Options& options(size_t group) const { return group_options_.at(group); }
  std::vector<std::pair<std::string, std::string>> options_of(size_t group) const override;
  bool finds_rate() const override {
    for (const Options& options : group_options_)
      if (finds_rate_under(options)) return true;
    return false;
  }
  bool launches_together() const override { return batches; }
  std::optional<double> last_lr(size_t group) const override {
    if constexpr (requires(const State& state) { Rule::found_rate(state, options_); })
      if (const auto& of = rate_is_found_by_.at(group)) {
        const State& state = *fetched(*of);
        if constexpr (requires { state.step; })
          if (state.step == 0) return {};
        return Rule::found_rate(state, group_options_[group]);
      }
    return last_lr_.at(group);
  }

  // State of a parameter by its full name. Throws, naming similar ones, if there is no such
  // parameter, and if it has had no gradient yet.
  const State& state(std::string_view parameter) const {
    const size_t i = index_of(parameter);
    check(states_[i].has_value(), "{}: {} has no state yet, as it has had no gradient", Rule::name,
          parameter);
    return *fetched(i);
  }

  // A parameter and its state; null before its first gradient.
  struct Item {
    std::string_view name;
    Tensor parameter;
    const State* state;
  };
  // All parameters in the order of the groups: for (const auto& [name, parameter, state] : ...).
  std::vector<Item> items() const {
    std::vector<Item> items;
    for (size_t i = 0; i < parameters().size(); ++i)
      items.push_back({parameters()[i].name, parameters()[i].tensor, fetched(i)});
    return items;
  }

 protected:
  void update_all(const StepOptions& step) override;
  void count_back(const std::vector<bool>& parameters, int64_t steps) const override {
    if constexpr (requires(State & state) { state.step -= steps; })
      for (size_t i = 0; i < parameters.size(); ++i)
        if (parameters[i] && states_[i]) states_[i]->step -= steps;
  }
  bool has_state(size_t parameter) const override { return states_[parameter].has_value(); }
  void list_state(size_t parameter, const UseFields& use) const override {
    const State* own = fetched(parameter);
    State state = own ? *own : State{};  // its tensors are handles
    StateFields fields;
    Rule::list_state(state, spec_of(parameter), options_for(parameter), fields);
    use(fields);
  }
  void replace_state(size_t parameter, const UseFields& fill) override;
  void drop_state(size_t parameter) override {
    states_[parameter].reset();
    change_layout();
  }
  void list_shared(const UseFields& use) const override {
    if constexpr (requires(Rule & rule, StateFields & fields) { rule.shared_state(fields); }) {
      Rule rule = rule_;
      StateFields fields;
      rule.shared_state(fields);
      use(fields);
    }
  }

 private:
  static std::vector<ParameterGroup> one_group(NamedTensors parameters) {
    std::vector<ParameterGroup> groups(1);
    groups[0].parameters = std::move(parameters);
    return groups;
  }
  const Options& options_for(size_t parameter) const {
    return group_options_[parameters()[parameter].group];
  }
  static bool finds_rate_under(const Options& options) {
    if constexpr (requires { Rule::finds_rate(options); })
      return Rule::finds_rate(options);
    else
      return false;
  }
  static constexpr bool batches = requires { Rule::batches; };
  // The state with all its numbers, null where there is none.
  const State* fetched(size_t parameter) const {
    settle();
    std::optional<State>& state = states_[parameter];
    if constexpr (requires(State & own) { Rule::fetch(own); })
      if (state) Rule::fetch(*state);
    return state ? &*state : nullptr;
  }
  // The rate of an update that was just made.
  static std::optional<double> rate_of(const State& state, const Options& options) {
    if constexpr (requires { Rule::found_rate(state, options); })
      if (finds_rate_under(options)) return Rule::found_rate(state, options);
    return options.lr;
  }
  // Options of a group for a step at the rate of a schedule.
  Options at_rate(size_t group, double lr) const;

  Rule rule_;
  bool shares_ = false;  // whether the shared state has its memory
  Options options_;
  std::vector<Options> group_options_;
  std::vector<std::optional<double>> last_lr_;  // by group
  // By group: the parameter whose update found the rate, where that is still on a device.
  std::vector<std::optional<size_t>> rate_is_found_by_;
  // By parameter; never moved, so that users may hold on. Reading one may fetch its numbers.
  mutable std::deque<std::optional<State>> states_;
};

// --- implementation ---

template <class Rule>
void Optimizer<Rule>::add_group(ParameterGroup group, Options options) {
  if (group.lr) options.lr = *group.lr;
  if constexpr (requires { options.weight_decay = 0.0; }) {
    if (group.weight_decay) options.weight_decay = *group.weight_decay;
  } else {
    check(!group.weight_decay.has_value() || *group.weight_decay == 0.0,
          "{}: group {} asks for a weight_decay of {}, which this rule does not have", Rule::name,
          groups().size(), group.weight_decay.value_or(0.0));
  }
  Rule::validate(options);
  append(std::move(group));
  group_options_.push_back(std::move(options));
  last_lr_.emplace_back();
  rate_is_found_by_.emplace_back();
  states_.resize(parameters().size());
}

template <class Rule>
auto Optimizer<Rule>::options_of(size_t group) const
    -> std::vector<std::pair<std::string, std::string>> {
  Options copy = group_options_.at(group);
  OptionFields fields;
  Rule::list_options(copy, fields);
  std::vector<std::pair<std::string, std::string>> texts;
  for (const OptionField& field : fields)
    texts.emplace_back(field.key, field.text());
  return texts;
}

template <class Rule>
auto Optimizer<Rule>::at_rate(size_t group, double lr) const -> Options {
  Options options = group_options_[group];
  // A rule may hold its rate in an optional: no rate of its own is no ratio to keep.
  const std::optional<double> own = options.lr, base = options_.lr;
  double ratio = 1.0;
  if (own && base && *own != *base) {
    check(*base != 0.0, "{}: group {} has a rate of {}, which has no ratio to the optimizer's 0",
          Rule::name, group, *own);
    ratio = *own / *base;
  }
  options.lr = lr * ratio;
  Rule::validate(options);
  return options;
}

template <class Rule>
void Optimizer<Rule>::update_all(const StepOptions& step) {
  double gradient_scale = step.gradient_scale;
  check(std::isfinite(gradient_scale), "{}: gradient_scale is {}, must be finite", Rule::name,
        gradient_scale);
  const NoGrad no_grad;
  std::vector<Options> now = group_options_;
  if (step.lr)
    for (size_t g = 0; g < now.size(); ++g)
      now[g] = at_rate(g, *step.lr);
  cuda::LaunchList* const launches = batches ? new_launches() : nullptr;
  const double* factor = nullptr;
  const int64_t* left_out = nullptr;
  if (step.gradient_factor.defined() && launches != nullptr &&
      step.gradient_factor.device().is_cuda()) {
    factor = step.gradient_factor.template data<double>();
    std::vector<bool> stepped;
    for (const Parameter& parameter : parameters())
      stepped.push_back(parameter.tensor.grad().defined());
    left_out = begin_unsettled(
        std::move(stepped), on_non_finite() == OnNonFinite::skip && step.factor_tells_non_finite);
  } else {
    settle();
    if (step.gradient_factor.defined()) {
      const double value = step.gradient_factor.item();
      if (std::isnan(value)) return count_skipped();
      gradient_scale *= value;
    }
  }
  std::vector<bool> seen(groups().size());
  Tensors gradients;  // that live until the launches have them
  for (size_t i = 0; i < parameters().size(); ++i) {
    const auto& [name, tensor, group, state_device] = parameters()[i];
    if (!tensor.grad().defined()) continue;
    const memory::Scope scope(memory::Category::workspace);
    const Tensor gradient = tensor.grad().contiguous();
    if (launches != nullptr) {
      gradients.push_back(gradient);
      launch_for_group(group);
    }
    if (!states_[i])
      replace_state(i, [device = tensor.device()](const StateFields& fields) {
        allocate_state(fields, device);
      });
    rule_.update(Update{name, tensor, gradient, gradient_scale, launches, factor, left_out},
                 *states_[i], now[group]);
    if (!seen[group]) {
      rate_is_found_by_[group].reset();
      if (launches != nullptr && finds_rate_under(now[group]))
        rate_is_found_by_[group] = i;
      else
        last_lr_[group] = rate_of(*states_[i], now[group]);
    }
    seen[group] = true;
    tensor.bump_version();
  }
  if (left_out != nullptr) has_counted();
  if (launches != nullptr) run_launches(factor);
}

template <class Rule>
void Optimizer<Rule>::replace_state(size_t parameter, const UseFields& fill) {
  if constexpr (requires(StateFields & fields) { rule_.shared_state(fields); }) {
    if (!shares_) {
      StateFields fields;
      rule_.shared_state(fields);
      allocate_state(fields, parameters()[parameter].tensor.device());
      shares_ = true;
    }
  }
  State fresh{};
  StateFields fields;
  Rule::list_state(fresh, spec_of(parameter), options_for(parameter), fields);
  fill(fields);
  states_[parameter] = std::move(fresh);
  state_is_on(parameter, parameters()[parameter].tensor.device());
}

}  // namespace minim::optim
