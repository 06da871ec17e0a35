#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include <cuda_runtime_api.h>

#include "core/tensor.h"

namespace minim::cuda {

// Says what is wrong with an index, given its value and its place in the tensor.
using DescribeIndex = std::function<std::string(int64_t value, int64_t place)>;

// Lets a device look for indices that are out of range, where asking it for their values would
// wait. The device notes the first one that it meets; whoever waits for it anyway reports that.
class IndexGuard {
 public:
  explicit IndexGuard(cudaStream_t stream) : stream_(stream) {}

  // A copy of contiguous i32 or i64 `indices` in which those neither in [0, extent) nor `ignored`
  // are 0. The extent is positive. `op` begins the text for other dtypes.
  Tensor guard(std::string_view op, const Tensor& indices, int64_t extent,
               std::optional<int64_t> ignored, DescribeIndex describe);
  // Once the stream's work is done: throws Error with the description of the first index that was
  // out of range since the last call. Costs nothing where nothing was guarded.
  void report();

 private:
  std::mutex mutex_;
  cudaStream_t stream_;
  int64_t* note_ = nullptr;  // on the device: number of the check, value, place; 0 for none
  int64_t checks_ = 0;
  std::map<int64_t, DescribeIndex> open_;
};

// That of a device.
IndexGuard& index_guard(Device device);

}  // namespace minim::cuda
