#include "tests/cuda_emulator/speed_kernels.h"

namespace minim::emulator {

SpeedKernels plain_kernels() {
  return speed_kernels();
}

}  // namespace minim::emulator
