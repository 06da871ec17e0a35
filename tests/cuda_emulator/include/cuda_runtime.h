// Found before the toolkit's header of this name in an emulated build: the toolkit's types and
// prototypes, and what only nvcc knows.
#pragma once
#pragma GCC system_header
#include_next <cuda_runtime.h>

// The only attribute that the toolkit does not define away for other compilers.
#undef __launch_bounds__
#define __launch_bounds__(...)

#include "tests/cuda_emulator/device.h"
#include "tests/cuda_emulator/intrinsics.h"
