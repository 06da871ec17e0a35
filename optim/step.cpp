#include <cmath>

#include "optim/any_optimizer.h"
#include "optim/clip.h"

// What precedes every rule's update: whether there is to be one.
namespace minim::optim {

bool AnyOptimizer::step(const StepOptions& options) {
  begin_step();
  if (const Tensor& factor = options.gradient_factor; factor.defined())
    check(factor.dtype() == DType::f64 && factor.numel() == 1 &&
              (factor.device().is_cpu() || factor.device() == parameters_[0].tensor.device()),
          "{}: gradient_factor is {} {} on {}, must be one f64 on {}", name(),
          name_of(factor.dtype()), factor.shape(), factor.device(), parameters_[0].tensor.device());
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const auto& [own, tensor, group, state_device] = parameters_[i];
    check(!has_state(i) || tensor.device() == state_device,
          "{}: {} is on {}, its state on {}; move the model before the first step, or load the "
          "state again after it",
          name(), own, tensor.device(), state_device);
  }
  if (on_non_finite_ != OnNonFinite::apply && !options.factor_tells_non_finite) {
    NamedTensors all;
    for (const Parameter& parameter : parameters_)
      all.push_back({parameter.name, parameter.tensor});
    const double norm = options.gradient_norm ? *options.gradient_norm : gradient_norm(all);
    if (!std::isfinite(norm)) {
      if (on_non_finite_ == OnNonFinite::skip) {
        ++skipped_steps_;
        return false;
      }
      const std::optional<NonFinite> culprit = find_non_finite(all);
      check(culprit.has_value(), "{}: the norm of all gradients is {}, must be finite", name(),
            norm);
      fail("{}: {}, the first of them {} at {}; OnNonFinite::skip would leave such steps out",
           name(), culprit->to_string(), culprit->first_value, culprit->first);
    }
  }
  update_all(options);
  return true;
}

const int64_t* AnyOptimizer::begin_unsettled(std::vector<bool> stepped, bool counts_skips) {
  // One count is enough as long as it stands for the same parameters.
  if (stepped != stepped_ || counts_skips != counts_skips_) settle();
  stepped_ = std::move(stepped);
  counts_skips_ = counts_skips;
  is_settled_ = false;
  return left_out_.data<int64_t>();
}

void AnyOptimizer::settle() const {
  if (is_settled_) return;
  const auto left_out = int64_t(left_out_.item());
  is_settled_ = true;
  if (left_out == 0) return;
  fill(left_out_, 0);
  count_back(stepped_, left_out);
  if (counts_skips_) skipped_steps_ += left_out;
}

}  // namespace minim::optim
