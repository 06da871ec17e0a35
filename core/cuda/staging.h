#pragma once

#include <array>
#include <cstddef>
#include <mutex>

#include <cuda_runtime_api.h>

namespace minim::cuda {

// Copies between memory of the host and a device by way of a few pinned buffers, taken in turn.
class Staging {
 public:
  explicit Staging(cudaStream_t stream) : stream_(stream) {}

  // Returns as soon as the host's memory has been read; the rest is done in the order of the
  // stream.
  void copy_in(void* to, const void* host, size_t bytes);
  // Returns when the bytes are there.
  void copy_out(void* host, const void* from, size_t bytes);

 private:
  static constexpr size_t slot_bytes = size_t(1) << 20;
  struct Slot {
    void* memory = nullptr;      // allocated when first used
    cudaEvent_t done = nullptr;  // the copy that used it last
  };

  // The next slot, once the copy that used it last is over.
  Slot& next();

  cudaStream_t stream_;
  std::mutex mutex_;
  std::array<Slot, 4> slots_;
  size_t turn_ = 0;
};

}  // namespace minim::cuda
