// Found before the toolkit's header of this name in an emulated build: the toolkit's types and
// prototypes, and what only nvcc knows.
#pragma once
#pragma GCC system_header
#include_next <cuda_runtime.h>

#include "tests/cuda_emulator/device.h"
#include "tests/cuda_emulator/intrinsics.h"
