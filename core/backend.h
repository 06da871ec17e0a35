#pragma once

#include <cstddef>

#include "core/device.h"

namespace minim {

// What each kind of device does in its own way, about raw memory. All work on a device is done in
// the order in which it was asked for; only copy_out and synchronize wait for it. Failures throw
// Error naming the device.
struct Backend {
  // At least that many bytes, aligned to 64 on the CPU and to 256 on CUDA; nullptr when there are
  // no more.
  void* (*allocate)(Device, size_t bytes);
  void (*release)(Device, void* memory);
  // Bytes that are free, for messages; 0 where that is not known.
  size_t (*free_bytes)(Device);

  // Makes all bytes equal.
  void (*set)(Device, void* to, int byte, size_t bytes);
  // From memory of the host, which may be changed as soon as the call returns.
  void (*copy_in)(Device, void* to, const void* host, size_t bytes);
  // To memory of the host.
  void (*copy_out)(Device, void* host, const void* from, size_t bytes);
  // Waits until all work is done.
  void (*synchronize)(Device);
};

// Throws Error where there is no such device.
const Backend& backend(Device device);

// That of CUDA devices. A build without CUDA has one that refuses everything.
const Backend& cuda_backend();

}  // namespace minim
