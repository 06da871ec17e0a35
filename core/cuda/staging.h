#pragma once

#include <cstddef>
#include <mutex>
#include <vector>

#include <cuda_runtime_api.h>

namespace minim::cuda {

// Copies between memory of the host and a device by way of pinned buffers, taken in turn: a few
// large ones, and for the batches of several steps, so that the host may be that far ahead, many
// small.
class Staging {
 public:
  explicit Staging(cudaStream_t stream) : stream_(stream) {}

  // Returns as soon as the host's memory has been read; the rest is done in the order of the
  // stream.
  void copy_in(void* to, const void* host, size_t bytes);
  // Returns when the bytes are there.
  void copy_out(void* host, const void* from, size_t bytes);

 private:
  struct Slot {
    void* memory = nullptr;      // allocated when first used
    cudaEvent_t done = nullptr;  // the copy that used it last
  };
  struct Ring {
    size_t slot_bytes;
    std::vector<Slot> slots;
    size_t turn = 0;
  };

  // The next slot of a ring, once the copy that used it last is over.
  static Slot& next(Ring& ring);

  cudaStream_t stream_;
  std::mutex mutex_;
  Ring small_ = {size_t(1) << 16, std::vector<Slot>(64)};
  Ring large_ = {size_t(1) << 20, std::vector<Slot>(4)};
};

}  // namespace minim::cuda
