#include "core/cuda/launch.h"

#include <cstdlib>
#include <cxxabi.h>
#include <memory>
#include <string>

namespace minim::cuda {

namespace {

constexpr size_t shared_without_asking = 48 << 10;

std::string name_of(const void* kernel) {
  const char* name = nullptr;
  if (cudaFuncGetName(&name, kernel) != cudaSuccess || name == nullptr) return "kernel";
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> readable(
      abi::__cxa_demangle(name, nullptr, nullptr, &status), std::free);
  return readable ? readable.get() : name;
}

bool holds(const Extent& e, int64_t x, int64_t y, int64_t z) {
  return e.x >= 1 && e.x <= x && e.y >= 1 && e.y <= y && e.z >= 1 && e.z <= z;
}

}  // namespace

void check_cuda(cudaError_t error, const char* what) {
  if (error != cudaSuccess) fail("{}: {}", what, cudaGetErrorString(error));
}

void fail_launch(const void* kernel, const LaunchShape& shape, const char* why) {
  const Extent &b = shape.blocks, &t = shape.threads;
  fail(
      "{}: a launch of {} x {} x {} blocks of {} x {} x {} threads with {} bytes of shared memory "
      "failed: {}",
      name_of(kernel), b.x, b.y, b.z, t.x, t.y, t.z, shape.shared, why);
}

void prepare_launch(const void* kernel, const LaunchShape& shape) {
  if (!holds(shape.blocks, 2147483647, 65535, 65535))
    fail_launch(kernel, shape, "a grid has 1 to 2147483647 x 65535 x 65535 blocks");
  if (!holds(shape.threads, 1024, 1024, 64) ||
      shape.threads.x * shape.threads.y * shape.threads.z > 1024)
    fail_launch(kernel, shape, "a block has 1 to 1024 threads");
  if (shape.shared > shared_without_asking &&
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                           int(shape.shared)) != cudaSuccess) {
    const std::string why = cudaGetErrorString(cudaGetLastError());
    fail_launch(kernel, shape, why.c_str());
  }
}

}  // namespace minim::cuda
