#include "core/cuda/staging.h"

#include <algorithm>
#include <cstring>

#include "core/cuda/launch.h"

namespace minim::cuda {

Staging::Slot& Staging::next(Ring& ring) {
  Slot& slot = ring.slots[ring.turn++ % ring.slots.size()];
  if (slot.memory == nullptr) {
    check_cuda(cudaMallocHost(&slot.memory, ring.slot_bytes), "device: pinned memory for copies");
    check_cuda(cudaEventCreateWithFlags(&slot.done, cudaEventDisableTiming), "device: an event");
  } else {
    cudaError_t state = cudaEventQuery(slot.done);
    if (state == cudaErrorNotReady) {
      cudaGetLastError();  // so that nobody takes it for an error
      state = cudaEventSynchronize(slot.done);
    }
    check_cuda(state, "device: a copy to the device");
  }
  return slot;
}

void Staging::copy_in(void* to, const void* host, size_t bytes) {
  const std::lock_guard lock(mutex_);
  Ring& ring = bytes <= small_.slot_bytes ? small_ : large_;
  for (size_t begin = 0; begin < bytes; begin += ring.slot_bytes) {
    const size_t part = std::min(ring.slot_bytes, bytes - begin);
    const Slot& slot = next(ring);
    std::memcpy(slot.memory, static_cast<const std::byte*>(host) + begin, part);
    check_cuda(cudaMemcpyAsync(static_cast<std::byte*>(to) + begin, slot.memory, part,
                               cudaMemcpyHostToDevice, stream_),
               "device: a copy to the device");
    check_cuda(cudaEventRecord(slot.done, stream_), "device: a copy to the device");
  }
}

void Staging::copy_out(void* host, const void* from, size_t bytes) {
  const std::lock_guard lock(mutex_);
  for (size_t begin = 0; begin < bytes; begin += large_.slot_bytes) {
    const size_t part = std::min(large_.slot_bytes, bytes - begin);
    const Slot& slot = next(large_);
    check_cuda(cudaMemcpyAsync(slot.memory, static_cast<const std::byte*>(from) + begin, part,
                               cudaMemcpyDeviceToHost, stream_),
               "device: a copy from the device");
    check_cuda(cudaEventRecord(slot.done, stream_), "device: a copy from the device");
    check_cuda(cudaEventSynchronize(slot.done), "device: a copy from the device");
    std::memcpy(static_cast<std::byte*>(host) + begin, slot.memory, part);
  }
}

}  // namespace minim::cuda
