#include <cstring>

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include "tests/cuda_emulator/checker.h"
#include "tests/cuda_emulator/device_memory.h"
#include "tests/cuda_emulator/emulator.h"
#include "tests/cuda_emulator/pinned_memory.h"
#include "tests/cuda_emulator/runtime.h"

// The runtime's calls for memory: of the device, pinned, and copies.

using namespace minim::emulator;

namespace {

cudaError_t allocate(void** p, size_t bytes, const Ticket& created) {
  *p = nullptr;
  if (bytes == 0) return cudaSuccess;
  count_allocation();
  const Allocation* a = allocate_device(bytes, created);
  if (a == nullptr)
    return fail_with(cudaErrorMemoryAllocation,
                     fmt::format("{} bytes asked for, {} of {} in use", bytes,
                                 device_bytes_in_use(), options().device_bytes));
  *p = reinterpret_cast<void*>(a->begin);
  return cudaSuccess;
}

// The live allocation that begins here; else reports and returns nullptr.
Allocation* to_free(void* p, const char* call) {
  Allocation* a = find_allocation(p);
  if (a != nullptr && a->begin == uintptr_t(p) && a->live && !a->doomed) return a;
  report(Problem::invalid_free,
         fmt::format("{} of {}", call,
                     a == nullptr               ? fmt::format("{}, which was never allocated", p)
                     : a->begin == uintptr_t(p) ? a->describe() + ", for the second time"
                                                : "an address inside of " + a->describe()));
  fail_with(cudaErrorInvalidValue, "not an allocation");
  return nullptr;
}

// One side of a copy, looked up when the copy is run (a graph's may be long after it was asked
// for).
struct Side {
  Allocation* allocation = nullptr;  // nullptr: host memory
  size_t offset = 0;
};

// False, after a report, if the range is not in one live allocation.
bool find_range(const void* p, size_t bytes, const char* what, Side& side) {
  if (!is_device_address(p)) return true;
  Allocation* a = find_allocation(p);
  if (a == nullptr || !a->live || uintptr_t(p) + bytes > a->end()) {
    const bool freed = a != nullptr && !a->live;
    report(freed ? Problem::use_after_free : Problem::invalid_copy,
           fmt::format("{} of {} bytes from {}", what, bytes, describe_place(p)));
    return false;
  }
  side = {a, uintptr_t(p) - a->begin};
  return true;
}

void run_copy(void* to, const void* from, size_t bytes) {
  Side destination, source;
  if (!find_range(to, bytes, "copy to the range", destination) ||
      !find_range(from, bytes, "copy of the range", source))
    return;
  std::memmove(to, from, bytes);
  if (destination.allocation != nullptr && source.allocation != nullptr)
    checker::copy_range(*destination.allocation, destination.offset, *source.allocation,
                        source.offset, bytes, "copy");
  else if (destination.allocation != nullptr)
    checker::write_range(*destination.allocation, destination.offset, bytes, "copy to the device");
  else if (source.allocation != nullptr)
    checker::read_range(*source.allocation, source.offset, bytes, "copy to the host");
}

void run_memset(void* p, int value, size_t bytes) {
  Side side;
  if (!find_range(p, bytes, "memset", side)) return;
  std::memset(p, value, bytes);
  checker::write_range(*side.allocation, side.offset, bytes, "memset");
}

// The direction that two addresses have.
cudaMemcpyKind direction(const void* to, const void* from) {
  if (is_device_address(to))
    return is_device_address(from) ? cudaMemcpyDeviceToDevice : cudaMemcpyHostToDevice;
  return is_device_address(from) ? cudaMemcpyDeviceToHost : cudaMemcpyHostToHost;
}

cudaError_t check_copy(const void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  if (kind != cudaMemcpyDefault && kind != direction(to, from)) {
    report(Problem::invalid_copy, "copy in another direction than that of its addresses");
    return fail_with(cudaErrorInvalidValue, "the direction does not fit the addresses");
  }
  Side side;
  if (!find_range(to, bytes, "copy to the range", side) ||
      !find_range(from, bytes, "copy of the range", side))
    return fail_with(cudaErrorInvalidValue, "the range is not in one allocation");
  for (const void* p : {to, from})
    if (is_pinned(p) && pinned_room(p) < bytes) {
      report(Problem::invalid_copy, fmt::format("copy of {} bytes, where the pinned buffer has {}",
                                                bytes, pinned_room(p)));
      return fail_with(cudaErrorInvalidValue, "the range is not in one pinned buffer");
    }
  return cudaSuccess;
}

}  // namespace

extern "C" {

cudaError_t cudaMalloc(void** p, size_t bytes) {
  const Call call;
  if (call.error() != cudaSuccess) return call.error();
  const cudaError_t error = refuse_while_capturing("cudaMalloc");
  return error != cudaSuccess ? error : allocate(p, bytes, Ticket());
}

cudaError_t cudaMallocAsync(void** p, size_t bytes, cudaStream_t handle) {
  const Call call;
  if (call.error() != cudaSuccess) return call.error();
  Stream* stream = find_stream(handle);
  if (stream == nullptr || stream->capture)
    return fail_with(cudaErrorNotSupported, "the emulator's graphs do not allocate");
  const cudaError_t error = submit(handle, {[] {}});
  if (error != cudaSuccess) return error;
  return allocate(p, bytes, Ticket{stream->lane, stream->after.at(stream->lane)});
}

cudaError_t cudaFree(void* p) {
  const Call call;
  if (p == nullptr) return call.error();
  if (const cudaError_t error = refuse_while_capturing("cudaFree"); error != cudaSuccess)
    return error;
  wait_for_all();
  Allocation* a = to_free(p, "cudaFree");
  if (a == nullptr) return cudaErrorInvalidValue;
  count_allocation();
  free_device(*a);
  return call.error();
}

cudaError_t cudaFreeAsync(void* p, cudaStream_t stream) {
  const Call call;
  if (p == nullptr || call.error() != cudaSuccess) return call.error();
  Allocation* a = to_free(p, "cudaFreeAsync");
  if (a == nullptr) return cudaErrorInvalidValue;
  count_allocation();
  a->doomed = true;
  return submit(
      stream, {[a] {
        const std::string wrong = checker::note_use(*a);
        if (!wrong.empty() || a->shadow.concurrent)
          report(Problem::stream_race,
                 a->describe() + " is freed on a stream that does not wait for work that uses it");
        free_device(*a);
      }});
}

cudaError_t cudaMallocHost(void** p, size_t bytes) {
  return cudaHostAlloc(p, bytes, cudaHostAllocDefault);
}

cudaError_t cudaHostAlloc(void** p, size_t bytes, unsigned) {
  const Call call;
  if (call.error() != cudaSuccess) return call.error();
  if (const cudaError_t error = refuse_while_capturing("cudaHostAlloc"); error != cudaSuccess)
    return error;
  count_allocation();
  *p = allocate_pinned(bytes);
  return *p == nullptr ? fail_with(cudaErrorMemoryAllocation, "no more memory") : cudaSuccess;
}

cudaError_t cudaFreeHost(void* p) {
  const Call call;
  if (p == nullptr) return call.error();
  if (const std::string text = describe_pinned_fault(p); !text.empty())
    report(Problem::pinned_in_use, "cudaFreeHost: " + text);
  wait_for_all();
  count_allocation();
  if (free_pinned(p)) return call.error();
  report(Problem::invalid_free, fmt::format("cudaFreeHost of {}, which is no pinned buffer", p));
  return fail_with(cudaErrorInvalidValue, "not a pinned buffer");
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t handle) {
  const Call call;
  if (call.error() != cudaSuccess || bytes == 0) return call.error();
  if (const cudaError_t error = check_copy(to, from, bytes, kind); error != cudaSuccess)
    return error;
  const Stream* stream = find_stream(handle);
  const cudaMemcpyKind way = direction(to, from);
  const void* host = way == cudaMemcpyHostToDevice   ? from
                     : way == cudaMemcpyDeviceToHost ? to
                                                     : nullptr;
  if (host == nullptr) return submit(handle, {[=] { run_copy(to, from, bytes); }});
  if (is_pinned(host))
    return submit(handle,
                  {[=] { run_copy(to, from, bytes); }, {{host, way == cudaMemcpyDeviceToHost}}});
  if (stream != nullptr && stream->capture)
    return break_capture(*stream->capture, cudaErrorStreamCaptureUnsupported,
                         "a captured copy from or to host memory that is not pinned");
  if (way == cudaMemcpyHostToDevice) {  // the driver has taken the bytes when the call returns
    const std::shared_ptr<char[]> staged(new char[bytes]);
    std::memcpy(staged.get(), from, bytes);
    return submit(handle, {[=] { run_copy(to, staged.get(), bytes); }});
  }
  const cudaError_t error = submit(handle, {[=] { run_copy(to, from, bytes); }});
  if (error != cudaSuccess) return error;
  wait_for(stream->after);  // the call returns when the bytes are there
  return context_error();
}

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  const Call call;
  if (call.error() != cudaSuccess || bytes == 0) return call.error();
  if (const cudaError_t error = refuse_while_capturing("cudaMemcpy"); error != cudaSuccess)
    return error;
  const cudaError_t error = cudaMemcpyAsync(to, from, bytes, kind, nullptr);
  if (error != cudaSuccess || direction(to, from) == cudaMemcpyDeviceToDevice) return error;
  count_synchronisation();
  wait_for(find_stream(nullptr)->after);
  return context_error();
}

cudaError_t cudaMemset(void* p, int value, size_t bytes) {
  const Call call;
  if (const cudaError_t error = refuse_while_capturing("cudaMemset"); error != cudaSuccess)
    return error;
  return cudaMemsetAsync(p, value, bytes, nullptr);
}

cudaError_t cudaMemsetAsync(void* p, int value, size_t bytes, cudaStream_t stream) {
  const Call call;
  if (call.error() != cudaSuccess || bytes == 0) return call.error();
  if (!is_device_address(p)) {
    report(Problem::invalid_copy, "memset of host memory");
    return fail_with(cudaErrorInvalidValue, "not device memory");
  }
  Side side;
  if (!find_range(p, bytes, "memset", side))
    return fail_with(cudaErrorInvalidValue, "the range is not in one allocation");
  return submit(stream, {[=] { run_memset(p, value, bytes); }});
}

cudaError_t cudaMemGetInfo(size_t* available, size_t* total) {
  const Call call;
  if (call.error() != cudaSuccess) return call.error();
  *total = options().device_bytes;
  *available = *total - device_bytes_in_use();
  return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* p) {
  const Call call;
  *attributes = cudaPointerAttributes{};
  attributes->type = is_device_address(p) ? cudaMemoryTypeDevice
                     : is_pinned(p)       ? cudaMemoryTypeHost
                                          : cudaMemoryTypeUnregistered;
  attributes->device = attributes->type == cudaMemoryTypeUnregistered ? -2 : 0;
  if (is_device_address(p)) attributes->devicePointer = const_cast<void*>(p);
  if (is_pinned(p)) attributes->hostPointer = const_cast<void*>(p);
  return call.error();
}
}
