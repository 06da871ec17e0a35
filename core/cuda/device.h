#pragma once

#include <cuda_runtime_api.h>

#include "core/device.h"

namespace minim::cuda {

// The stream that all work on a CUDA device is put on; makes the device the current one of this
// thread. Throws Error where there is no such device.
cudaStream_t stream(Device device);

}  // namespace minim::cuda
