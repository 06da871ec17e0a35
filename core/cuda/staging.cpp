#include "core/cuda/staging.h"

#include <algorithm>
#include <cstring>

#include "core/cuda/launch.h"

namespace minim::cuda {

Staging::Slot& Staging::next() {
  Slot& slot = slots_[turn_++ % slots_.size()];
  if (slot.memory == nullptr) {
    check_cuda(cudaMallocHost(&slot.memory, slot_bytes), "device: pinned memory for copies");
    check_cuda(cudaEventCreateWithFlags(&slot.done, cudaEventDisableTiming), "device: an event");
  } else {
    check_cuda(cudaEventSynchronize(slot.done), "device: a copy to the device");
  }
  return slot;
}

void Staging::copy_in(void* to, const void* host, size_t bytes) {
  const std::lock_guard lock(mutex_);
  for (size_t begin = 0; begin < bytes; begin += slot_bytes) {
    const size_t part = std::min(slot_bytes, bytes - begin);
    const Slot& slot = next();
    std::memcpy(slot.memory, static_cast<const std::byte*>(host) + begin, part);
    check_cuda(cudaMemcpyAsync(static_cast<std::byte*>(to) + begin, slot.memory, part,
                               cudaMemcpyHostToDevice, stream_),
               "device: a copy to the device");
    check_cuda(cudaEventRecord(slot.done, stream_), "device: a copy to the device");
  }
}

void Staging::copy_out(void* host, const void* from, size_t bytes) {
  const std::lock_guard lock(mutex_);
  for (size_t begin = 0; begin < bytes; begin += slot_bytes) {
    const size_t part = std::min(slot_bytes, bytes - begin);
    const Slot& slot = next();
    check_cuda(cudaMemcpyAsync(slot.memory, static_cast<const std::byte*>(from) + begin, part,
                               cudaMemcpyDeviceToHost, stream_),
               "device: a copy from the device");
    check_cuda(cudaEventRecord(slot.done, stream_), "device: a copy from the device");
    check_cuda(cudaEventSynchronize(slot.done), "device: a copy from the device");
    std::memcpy(static_cast<std::byte*>(host) + begin, slot.memory, part);
  }
}

}  // namespace minim::cuda
