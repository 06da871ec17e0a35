#include "core/backend.h"

#include <algorithm>
#include <array>
#include <memory>
#include <mutex>

#include "core/cuda/device.h"
#include "core/cuda/index_guard.h"
#include "core/cuda/launch.h"
#include "core/cuda/staging.h"
#include "core/cuda/store.h"
#include "core/recording.h"

namespace minim {

namespace {

// Compiled for the same architectures as every other kernel: if a device cannot run it, it cannot
// run any.
__global__ void probe_kernel() {}

std::string version_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

// Devices, or why there are none.
struct Devices {
  int count = 0;
  std::string why_none;
};

Devices find_devices() {
  Devices found;
  const cudaError_t error = cudaGetDeviceCount(&found.count);
  if (error == cudaSuccess && found.count > 0) {
    found.count = std::min(found.count, Device::most_cuda);
    return found;
  }
  cudaGetLastError();  // so that nobody else is blamed for it
  found.count = 0;
  int driver = 0, runtime = 0;
  cudaDriverGetVersion(&driver);
  cudaRuntimeGetVersion(&runtime);
  if (driver == 0)
    found.why_none = "no CUDA driver is found";
  else if (error == cudaErrorInsufficientDriver)
    found.why_none = fmt::format("the CUDA driver is made for CUDA {}, older than this build's {}",
                                 version_text(driver), version_text(runtime));
  else if (error == cudaErrorNoDevice || error == cudaSuccess)
    found.why_none = "no CUDA device is found";
  else
    found.why_none = fmt::format("CUDA says: {}", cudaGetErrorString(error));
  return found;
}

// What is kept for a device from its first use to the end of the program.
struct Context {
  cudaStream_t stream = nullptr;
  std::unique_ptr<cuda::Staging> staging;
  std::unique_ptr<cuda::IndexGuard> index_guard;

  explicit Context(Device device) {
    const Devices devices = find_devices();
    check(devices.count > 0, "device: {} cannot be used: {}", device, devices.why_none);
    check(device.index() < devices.count, "device: there is no {}; the last one is cuda:{}", device,
          devices.count - 1);
    cuda::check_cuda(cudaSetDevice(device.index()), "device: cannot be chosen");
    cudaFuncAttributes attributes;
    if (cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(probe_kernel)) !=
        cudaSuccess) {
      cudaGetLastError();
      int major = 0, minor = 0;
      cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device.index());
      cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device.index());
      fail(
          "device: {} has compute capability {}.{}, which this build has no code for; configure "
          "it with -Dgpu_arch={}{}",
          device, major, minor, major, minor);
    }
    cuda::check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "device: a stream");
    staging = std::make_unique<cuda::Staging>(stream);
    index_guard = std::make_unique<cuda::IndexGuard>(stream);
  }
};

// Makes the device the current one.
Context& context(Device device) {
  static std::mutex mutex;
  // Never destroyed: tensors in static storage may outlive any other static object.
  static auto* contexts = new std::array<std::unique_ptr<Context>, Device::most_cuda>;
  check(device.is_cuda(), "device: {} is no CUDA device", device);
  const std::lock_guard lock(mutex);
  std::unique_ptr<Context>& kept = (*contexts)[size_t(device.index())];
  if (kept)
    cuda::check_cuda(cudaSetDevice(device.index()), "device: cannot be chosen");
  else
    kept = std::make_unique<Context>(device);
  return *kept;
}

void check_not_recording(std::string_view what) {
  check(!Recording::is_recording(),
        "graph: a step that is recorded {}; whatever does so belongs before or after it", what);
}

// What is recorded has the bytes themselves: the host's memory may be another's when it is run.
void record_constant(Device device, void* to, const void* host, size_t bytes) {
  constexpr size_t most = 1 << 16;
  check(bytes <= most && bytes % sizeof(uint32_t) == 0,
        "graph: a step that is recorded copies {} bytes to the device, which may be a multiple of "
        "4 up to {}; larger ones belong before it",
        bytes, most);
  cuda::store(to, host, bytes, context(device).stream);
}

constexpr Backend backend_of_cuda = {
    .allocate = [](Device device, size_t bytes) -> void* {
      context(device);
      void* memory = nullptr;
      const cudaError_t error = cudaMalloc(&memory, bytes);
      if (error == cudaErrorMemoryAllocation) {
        cudaGetLastError();
        return nullptr;
      }
      cuda::check_cuda(error, "memory: asking the device");
      return memory;
    },
    .release =
        [](Device device, void* memory) {
          context(device);
          cuda::check_cuda(cudaFree(memory), "memory: giving back to the device");
        },
    .free_bytes =
        [](Device device) {
          context(device);
          size_t free = 0, total = 0;
          cuda::check_cuda(cudaMemGetInfo(&free, &total), "memory: asking the device");
          return free;
        },
    .set =
        [](Device device, void* to, int byte, size_t bytes) {
          cuda::check_cuda(cudaMemsetAsync(to, byte, bytes, context(device).stream),
                           "device: setting memory");
        },
    .copy_in =
        [](Device device, void* to, const void* host, size_t bytes) {
          if (Recording::is_recording())
            record_constant(device, to, host, bytes);
          else
            context(device).staging->copy_in(to, host, bytes);
        },
    .copy_out =
        [](Device device, void* host, const void* from, size_t bytes) {
          check_not_recording("reads values from the device");
          const Context& used = context(device);
          used.staging->copy_out(host, from, bytes);
          used.index_guard->report();
        },
    .synchronize =
        [](Device device) {
          check_not_recording("waits for the device");
          const Context& used = context(device);
          cuda::check_cuda(cudaStreamSynchronize(used.stream), "device: waiting");
          used.index_guard->report();
        },
};

}  // namespace

bool cuda::is_built() {
  return true;
}

int cuda::device_count() {
  return find_devices().count;
}

std::string cuda::why_unavailable() {
  return find_devices().why_none;
}

cudaStream_t cuda::stream(Device device) {
  return context(device).stream;
}

cuda::IndexGuard& cuda::index_guard(Device device) {
  return *context(device).index_guard;
}

const Backend& cuda_backend() {
  return backend_of_cuda;
}

}  // namespace minim
