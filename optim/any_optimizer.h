#pragma once

#include <functional>
#include <memory>
#include <optional>
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

namespace minim::cuda {
class LaunchList;
}

namespace minim::optim {

// What to do where a state was written under other options than the optimizer has.
enum class OtherOptions {
  refuse,    // an Error names them: the run would not continue as it was
  keep_mine  // go on with the optimizer's own, such as a new learning rate
};

// What a step does with gradients that hold NaN or an infinity.
enum class OnNonFinite {
  apply,   // asks nothing, as in PyTorch: the rule makes of them what it makes, weights of NaN
  refuse,  // an Error names the first such parameter and element, and nothing has changed
  skip     // leaves the whole step out and counts it, as PyTorch's GradScaler does
};

// What a step is told beside the options.
struct StepOptions {
  // The rate, as a schedule gives it; a group with a rate of its own keeps its ratio to the
  // optimizer's. Left out, each group has its own, which for a rule that finds its rate itself is
  // the only way.
  std::optional<double> lr = {};
  double gradient_scale = 1.0;  // multiplied onto the gradients as they are read; of clipping
  // One more factor where it is known to the parameters' device alone: an f64 of one element, such
  // as clip_on_device() gives, read there by the step. The CPU, and rules without `batches`, wait.
  // NaN leaves weights and state as they are, their counts of steps too, whether it waits or not.
  Tensor gradient_factor = {};
  // Whether that factor is NaN wherever a gradient is not finite, as clip_on_device() makes it to
  // skip: refuse and skip then leave such a step out without asking, and step() is true. To refuse
  // is then for whoever reads the norm.
  bool factor_tells_non_finite = false;
  // The norm of all gradients where it is known, from clipping: it is finite if they are, which
  // spares refuse and skip their own pass over them.
  std::optional<double> gradient_norm = {};
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

  // Updates every parameter that has a gradient. Parameters without one are left alone: no state,
  // no decay, and their step does not advance. False where OnNonFinite::skip left the step out.
  bool step(const StepOptions& options);
  bool step() { return step(StepOptions{}); }
  bool step(double lr, double gradient_scale = 1.0) {
    return step(StepOptions{.lr = lr, .gradient_scale = gradient_scale});
  }
  // Of all steps from now on; apply at first. The others read all gradients once more, unless the
  // step is given their norm: about a quarter of AdamW's time.
  void set_on_non_finite(OnNonFinite choice) { on_non_finite_ = choice; }
  OnNonFinite on_non_finite() const { return on_non_finite_; }
  // Steps that OnNonFinite::skip left out since the optimizer was made; waits for a device that
  // counts them.
  int64_t skipped_steps() const {
    settle();
    return skipped_steps_;
  }
  // For a recording that fails: takes back what the step after begin_step(), if there was any, has
  // counted, as its work never reached the device.
  void begin_step() { has_counted_ = false; }
  void take_back_step() {
    if (std::exchange(has_counted_, false)) count_back(stepped_, 1);
  }

  // Whether the rule finds its rate itself, so that a step must not be given one: Adafactor's
  // relative_step.
  virtual bool finds_rate() const = 0;
  // The rate of a group's last step, given or found; none before the first. Where it depends on the
  // parameter, that of the group's first, as Hugging Face's AdafactorSchedule logs it.
  virtual std::optional<double> last_lr(size_t group) const = 0;

  // Drops all gradients.
  void zero_grad();

  // Whether a step of parameters on a device is launched for all together, so that it can be
  // recorded (train/captured_step.h): of the rules that come with minim, all.
  virtual bool launches_together() const = 0;
  // Changes whenever parameters or tensors of the state become others.
  uint64_t layout() const { return layout_; }

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
    Device state_device;  // where its state was made
  };
  using UseFields = std::function<void(const StateFields&)>;

  AnyOptimizer() = default;

  // Checks the group and appends it and its parameters.
  void append(ParameterGroup group);
  // Throws, naming similar ones, if there is no parameter of that name.
  size_t index_of(std::string_view parameter) const;
  const std::vector<Parameter>& parameters() const { return parameters_; }
  ParameterSpec spec_of(size_t parameter) const;

  void change_layout() { ++layout_; }
  void state_is_on(size_t parameter, Device device) {
    parameters_[parameter].state_device = device;
    change_layout();
  }

  virtual void update_all(const StepOptions& options) = 0;
  // Where a step collects its work on the CUDA device that the parameters are on, empty; null on
  // the CPU.
  cuda::LaunchList* new_launches();
  // What is collected next is of a parameter of that group.
  void launch_for_group(size_t group);
  void run_launches(const double* gradient_factor);

  // A step on a device may be left out by it, which nobody waits to hear: the host counts on, and
  // the device counts what it left out since they last agreed. For each parameter `stepped` says
  // whether it has a gradient. Returns where the device's count is.
  const int64_t* begin_unsettled(std::vector<bool> stepped, bool counts_skips);
  // The step has moved all counts on.
  void has_counted() { has_counted_ = true; }
  // Makes the counts of steps those of the device; waits for it if there was any step since.
  void settle() const;
  // A step was left out here.
  void count_skipped() { skipped_steps_ += on_non_finite_ == OnNonFinite::skip ? 1 : 0; }
  // Takes so many steps off the counts of these parameters.
  virtual void count_back(const std::vector<bool>& parameters, int64_t steps) const = 0;
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
  OnNonFinite on_non_finite_ = OnNonFinite::apply;
  mutable int64_t skipped_steps_ = 0;
  uint64_t layout_ = 0;
  std::shared_ptr<cuda::LaunchList> launches_;
  Tensor left_out_;            // i64 [1] on the device: steps that it left out
  std::vector<bool> stepped_;  // the parameters of each step since the counts agreed
  bool counts_skips_ = false;  // whether those that were left out are counted as skipped
  bool has_counted_ = false;   // and whether the last one has moved them on
  mutable bool is_settled_ = true;
};

// Gives each tensor among the fields its memory, zeroed and counted as optimizer state.
void allocate_state(const StateFields& fields, Device device = Device());

// The same as optimizer.state_size().
StateSize state_size(const AnyOptimizer& optimizer);

}  // namespace minim::optim
