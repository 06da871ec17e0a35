#include "autograd/ops/checked_indices.h"

#include <utility>

#include "core/recording.h"
#include "core/tensor_impl.h"

#if defined(MINIM_WITH_CUDA)
#include "core/cuda/index_guard.h"
#endif

namespace minim {

Tensor checked_indices(std::string_view op, const Tensor& indices, int64_t extent,
                       std::optional<int64_t> ignored,
                       std::function<std::string(int64_t value, int64_t place)> describe) {
#if defined(MINIM_WITH_CUDA)
  // What a recorded step checks must be known: nobody would be told of what a later run finds.
  if (!indices.device().is_cpu() && !indices.impl()->storage->on_host().defined() &&
      Recording::current() == nullptr && extent > 0)
    return cuda::index_guard(indices.device())
        .guard(op, indices.contiguous(), extent, ignored, std::move(describe));
#endif
  const Tensor host = indices.to(Device::cpu()).contiguous();
  dispatch_index(host.dtype(), op, [&]<class Id>() {
    const auto values = host.values<Id>();
    for (size_t i = 0; i < values.size(); ++i) {
      const auto value = int64_t(values[i]);
      if ((value < 0 || value >= extent) && value != ignored)
        fail("{}", describe(value, int64_t(i)));
    }
  });
  return indices.contiguous();
}

}  // namespace minim
