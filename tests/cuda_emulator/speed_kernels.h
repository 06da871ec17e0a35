#pragma once

#include "core/cuda/launch.h"
#include "tests/cuda_emulator/kernels.h"

// The kernels whose speed is measured; each of two files compiles them in its own way.
namespace minim::emulator {
namespace {

__global__ void scale_kernel(float* y, const float* x, int n) {
  const int i = int(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) y[i] = x[i] * 2.0f + 1.0f;
}

__global__ void barriers_kernel(float* y, const float* x, int n) {
  SHARED(float, all, [256]);
  const int i = int(blockIdx.x * blockDim.x + threadIdx.x);
  float v = i < n ? x[i] : 0.0f;
  for (int round = 0; round < 2; ++round) {
    all[threadIdx.x] = v;
    __syncthreads();
    v = all[255 - threadIdx.x];
    __syncthreads();
  }
  if (i < n) y[i] = v;
}

__global__ void shuffles_kernel(float* y, const float* x, int n) {
  const int i = int(blockIdx.x * blockDim.x + threadIdx.x);
  float v = i < n ? x[i] : 0.0f;
  for (int step = 16; step > 0; step /= 2)
    v += __shfl_xor_sync(0xffffffffu, v, step);
  if (i < n) y[i] = v;
}

__global__ void nothing_kernel() {}

__global__ void write_behind_kernel(float* y, int n) {
  y[n] = 0;
}

SpeedKernels speed_kernels() {
  return {
      [](float* y, const float* x, int n) {
        cuda::launch(scale_kernel, {.blocks = {(n + 255) / 256}, .threads = {256}}, y, x, n);
      },
      [](float* y, const float* x, int n) {
        cuda::launch(barriers_kernel, {.blocks = {(n + 255) / 256}, .threads = {256}}, y, x, n);
      },
      [](float* y, const float* x, int n) {
        cuda::launch(shuffles_kernel, {.blocks = {(n + 255) / 256}, .threads = {256}}, y, x, n);
      },
      [] { cuda::launch(nothing_kernel, {.threads = {32}}); },
      [](float* y, int n) { cuda::launch(write_behind_kernel, {}, y, n); },
  };
}

}  // namespace
}  // namespace minim::emulator
