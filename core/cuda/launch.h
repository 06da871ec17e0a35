#pragma once

#include <cstddef>
#include <cstdint>

#include <cuda_runtime.h>

#include "core/error.h"

// How kernels are launched, and how they declare shared memory: the same lines for nvcc and for the
// emulator that runs kernels in tests. An emulated build finds its own <cuda_runtime.h> first.

// NOLINTBEGIN(bugprone-macro-parentheses): what is declared has no parentheses
#if defined(__CUDACC__)

// SHARED(float, tile, [32][33]): a variable that the threads of a block share, uninitialised.
#define SHARED(T, name, dims) __shared__ T name dims

// DYNAMIC_SHARED(float, scratch): a pointer to LaunchShape::shared bytes, aligned to 16.
#define DYNAMIC_SHARED(T, name)                                         \
  extern __shared__ __align__(16) unsigned char minim_dynamic_shared[]; \
  T* const name = reinterpret_cast<T*>(minim_dynamic_shared)

#else

#define SHARED(T, name, dims) \
  using name##_type = T dims; \
  name##_type& name = ::minim::emulator::shared_variable<name##_type>([] {})

#define DYNAMIC_SHARED(T, name) \
  T* const name = static_cast<T*>(::minim::emulator::dynamic_shared_storage())

#endif
// NOLINTEND(bugprone-macro-parentheses)

namespace minim::cuda {

// Blocks of a grid, or threads of a block.
struct Extent {
  int64_t x = 1, y = 1, z = 1;
};

struct LaunchShape {
  Extent blocks = {}, threads = {};
  size_t shared = 0;  // bytes of dynamic shared memory in each block
  cudaStream_t stream = nullptr;
};

// Throws Error "what: the driver's text" unless the code is cudaSuccess.
void check_cuda(cudaError_t error, const char* what);

// Throws Error naming the kernel and its shape.
[[noreturn]] void fail_launch(const void* kernel, const LaunchShape& shape, const char* why);
// Throws unless the shape is one that dim3 can hold; raises the kernel's limit where it takes more
// than 48 KiB of dynamic shared memory.
void prepare_launch(const void* kernel, const LaunchShape& shape);

// Runs kernel(arguments...) on a stream. Arguments are converted to the kernel's parameters and
// copied. Throws Error naming the kernel if it cannot be launched, or if earlier work has failed.
//   launch(scale_kernel<float>, {.blocks = {rows}, .threads = {256}, .stream = stream}, y,
//   x, 2.0f);
template <class... P, class... A>
void launch(void (*kernel)(P...), const LaunchShape& shape, A&&... arguments) {
  static_assert(sizeof...(P) == sizeof...(A), "the kernel has another number of arguments");
  const auto* address = reinterpret_cast<const void*>(kernel);
  prepare_launch(address, shape);
  const auto dimensions = [](const Extent& e) {
    return dim3(unsigned(e.x), unsigned(e.y), unsigned(e.z));
  };
#if defined(__CUDACC__)
  kernel<<<dimensions(shape.blocks), dimensions(shape.threads), shape.shared, shape.stream>>>(
      static_cast<P>(arguments)...);
  const cudaError_t error = cudaGetLastError();
#else
  const cudaError_t error =
      emulator::launch_kernel(kernel, dimensions(shape.blocks), dimensions(shape.threads),
                              shape.shared, shape.stream, static_cast<P>(arguments)...);
#endif
  if (error != cudaSuccess) fail_launch(address, shape, cudaGetErrorString(error));
}

}  // namespace minim::cuda
