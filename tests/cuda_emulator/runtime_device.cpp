#include <cstring>
#include <string>

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include "tests/cuda_emulator/emulator.h"
#include "tests/cuda_emulator/runtime.h"
#include "tests/cuda_emulator/shared_memory.h"

// The runtime's calls for devices, versions and the names of errors.

using namespace minim::emulator;

namespace {

constexpr int multiprocessors = 132;

struct ErrorName {
  cudaError_t error;
  const char* name;
  const char* text;
};
constexpr ErrorName error_names[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration",
     "invalid configuration argument"},
    {cudaErrorInsufficientDriver, "cudaErrorInsufficientDriver",
     "CUDA driver version is insufficient for CUDA runtime version"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorIllegalState, "cudaErrorIllegalState",
     "the operation cannot be performed in the present state"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorIllegalAddress, "cudaErrorIllegalAddress",
     "an illegal memory access was encountered"},
    {cudaErrorMisalignedAddress, "cudaErrorMisalignedAddress", "misaligned address"},
    {cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "unspecified launch failure"},
    {cudaErrorNotSupported, "cudaErrorNotSupported", "operation not supported"},
    {cudaErrorStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported",
     "operation not permitted when stream is capturing"},
    {cudaErrorStreamCaptureInvalidated, "cudaErrorStreamCaptureInvalidated",
     "operation failed due to a previous error during capture"},
    {cudaErrorStreamCaptureMerge, "cudaErrorStreamCaptureMerge",
     "operation would result in a merge of separate capture sequences"},
    {cudaErrorStreamCaptureUnmatched, "cudaErrorStreamCaptureUnmatched",
     "capture was not ended in the same stream as it began"},
    {cudaErrorStreamCaptureUnjoined, "cudaErrorStreamCaptureUnjoined",
     "capturing stream has unjoined work"},
    {cudaErrorStreamCaptureIsolation, "cudaErrorStreamCaptureIsolation",
     "dependency created on uncaptured work in another stream"},
    {cudaErrorStreamCaptureImplicit, "cudaErrorStreamCaptureImplicit",
     "operation would make the legacy stream depend on a capturing blocking stream"},
    {cudaErrorCapturedEvent, "cudaErrorCapturedEvent",
     "operation not permitted on an event last recorded in a capturing stream"},
};

cudaError_t check_device(int device) {
  return device >= 0 && device < options().devices
             ? cudaSuccess
             : fail_with(cudaErrorInvalidDevice,
                         fmt::format("device {} of {}", device, options().devices));
}

}  // namespace

extern "C" {

const char* cudaGetErrorName(cudaError_t error) {
  for (const ErrorName& e : error_names)
    if (e.error == error) return e.name;
  return "unrecognized error code";
}

const char* cudaGetErrorString(cudaError_t error) {
  for (const ErrorName& e : error_names)
    if (e.error == error) return e.text;
  return "unrecognized error code";
}

cudaError_t cudaGetDeviceCount(int* count) {
  const Call call;
  *count = 0;
  const bool usable = options().devices > 0 && call.error() != cudaErrorInsufficientDriver;
  if (!usable) return fail_with(call.error(), "there is no device, or an old driver");
  *count = options().devices;
  return call.error();
}

cudaError_t cudaGetDevice(int* device) {
  const Call call;
  *device = 0;
  return call.error();
}

cudaError_t cudaSetDevice(int device) {
  const Call call;
  if (call.error() != cudaSuccess) return call.error();
  if (const cudaError_t error = check_device(device); error != cudaSuccess) return error;
  return device == 0 ? cudaSuccess
                     : fail_with(cudaErrorNotSupported, "the emulator runs on device 0 alone");
}

cudaError_t cudaDeviceReset() {
  reset();
  return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int* version) {
  const Call call;
  *version = options().devices > 0 ? options().driver_version : 0;
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  const Call call;
  if (call.error() != cudaSuccess) return call.error();
  if (const cudaError_t error = check_device(device); error != cudaSuccess) return error;
  *properties = cudaDeviceProp{};
  std::strcpy(properties->name, "CUDA emulator");
  properties->totalGlobalMem = options().device_bytes;
  properties->sharedMemPerBlock = shared_bytes_default;
  properties->sharedMemPerBlockOptin = shared_bytes_most;
  properties->sharedMemPerMultiprocessor = shared_bytes_most + 1024;
  properties->warpSize = 32;
  properties->maxThreadsPerBlock = 1024;
  properties->maxThreadsPerMultiProcessor = 2048;
  properties->regsPerBlock = 65536;
  properties->multiProcessorCount = multiprocessors;
  properties->major = options().capability / 10;
  properties->minor = options().capability % 10;
  properties->concurrentKernels = 1;
  properties->asyncEngineCount = 2;
  properties->unifiedAddressing = 1;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  cudaDeviceProp properties;
  if (const cudaError_t error = cudaGetDeviceProperties(&properties, device); error != cudaSuccess)
    return error;
  switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock:
      *value = properties.maxThreadsPerBlock;
      break;
    case cudaDevAttrMaxSharedMemoryPerBlock:
      *value = int(properties.sharedMemPerBlock);
      break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = int(properties.sharedMemPerBlockOptin);
      break;
    case cudaDevAttrMultiProcessorCount:
      *value = properties.multiProcessorCount;
      break;
    case cudaDevAttrComputeCapabilityMajor:
      *value = properties.major;
      break;
    case cudaDevAttrComputeCapabilityMinor:
      *value = properties.minor;
      break;
    case cudaDevAttrWarpSize:
      *value = properties.warpSize;
      break;
    case cudaDevAttrMemoryPoolsSupported:
      *value = 1;
      break;
    default:
      return fail_with(cudaErrorNotSupported,
                       fmt::format("the emulator has no device attribute {}", int(attribute)));
  }
  return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  const Call call;
  *least = *greatest = 0;
  return call.error();
}
}
