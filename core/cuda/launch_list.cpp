#include "core/cuda/launch_list.h"

#include <algorithm>

namespace minim::cuda {

Tensor LaunchList::scratch(const Shape& shape, DType dtype) {
  if (scratch_used_ == scratch_.size()) scratch_.emplace_back();
  Tensor& kept = scratch_[scratch_used_++];
  if (!kept.defined() || kept.shape() != shape || kept.dtype() != dtype) {
    const memory::Scope scope(memory::Category::workspace);
    kept = Tensor::empty(shape, dtype, device_);
  }
  return kept;
}

void LaunchList::run(const double* unless_nan, int64_t* left_out) {
  const AnyBucket* last = nullptr;
  for (const auto& bucket : buckets_)
    if (!bucket->empty()) last = bucket.get();
  for (const auto& bucket : buckets_)
    bucket->run(device_, unless_nan, bucket.get() == last ? left_out : nullptr);
  scratch_used_ = 0;
}

void LaunchList::insert(std::unique_ptr<AnyBucket> bucket) {
  const auto place = std::ranges::upper_bound(buckets_, bucket->stage, {},
                                              [](const auto& known) { return known->stage; });
  buckets_.insert(place, std::move(bucket));
}

}  // namespace minim::cuda
