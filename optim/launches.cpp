#include "core/launch.h"
#include "optim/any_optimizer.h"

#if defined(MINIM_WITH_CUDA)
#include "core/cuda/launch_list.h"
#endif

// The steps of all parameters in few launches, where there are devices.
namespace minim::optim {

cuda::LaunchList* AnyOptimizer::new_launches() {
#if defined(MINIM_WITH_CUDA)
  const Device device = parameters_[0].tensor.device();
  if (device.is_cuda()) {
    if (!launches_ || launches_->device() != device)
      launches_ = std::make_shared<cuda::LaunchList>(device);
    launches_->clear();
    if (!left_out_.defined() || left_out_.device() != device) {
      const memory::Scope scope(memory::Category::workspace);
      left_out_ = Tensor::zeros({1}, DType::i64, device);
    }
    return launches_.get();
  }
#endif
  return nullptr;
}

void AnyOptimizer::launch_for_group([[maybe_unused]] size_t group) {
#if defined(MINIM_WITH_CUDA)
  launches_->set_kind(group);
#endif
}

void AnyOptimizer::run_launches([[maybe_unused]] const double* gradient_factor) {
#if defined(MINIM_WITH_CUDA)
  launches_->run(gradient_factor, left_out_.data<int64_t>());
#endif
}

}  // namespace minim::optim
