#include <map>

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include "tests/cuda_emulator/block.h"
#include "tests/cuda_emulator/checker.h"
#include "tests/cuda_emulator/device_memory.h"
#include "tests/cuda_emulator/runtime.h"
#include "tests/cuda_emulator/shared_memory.h"

// Launches of kernels, and what can be asked of and set for kernels.

namespace minim::emulator {

namespace {

constexpr unsigned threads_most = 1024;

std::map<const void*, size_t>& dynamic_limits() {
  static std::map<const void*, size_t> limits;
  return limits;
}

size_t dynamic_limit(const void* kernel) {
  const auto it = dynamic_limits().find(kernel);
  return it == dynamic_limits().end() ? shared_bytes_default : it->second;
}

cudaError_t refuse(const LaunchRequest& r, cudaError_t error, const std::string& why) {
  return fail_with(error, fmt::format("{}: {}", describe(r), why));
}

cudaError_t check_limits(const LaunchRequest& r) {
  const dim3 g = r.grid, b = r.block;
  if (g.x == 0 || g.y == 0 || g.z == 0 || b.x == 0 || b.y == 0 || b.z == 0)
    return refuse(r, cudaErrorInvalidConfiguration, "a dimension is 0");
  if (g.x > 2147483647u || g.y > 65535 || g.z > 65535)
    return refuse(r, cudaErrorInvalidConfiguration,
                  "a grid has at most 2147483647 x 65535 x 65535 blocks");
  if (b.x > threads_most || b.y > threads_most || b.z > 64 ||
      uint64_t(b.x) * b.y * b.z > threads_most)
    return refuse(r, cudaErrorInvalidConfiguration, "a block has at most 1024 threads");
  if (r.shared > dynamic_limit(r.kernel))
    return refuse(r, cudaErrorInvalidValue,
                  fmt::format("{} bytes of dynamic shared memory, where the kernel may use {}",
                              r.shared, dynamic_limit(r.kernel)));
  if (uint64_t(g.x) * g.y * g.z * b.x * b.y * b.z >= uint64_t(1) << 31 && checker::enabled())
    return refuse(r, cudaErrorNotSupported, "the checks can tell 2^31 threads apart");
  return cudaSuccess;
}

// Device pointers among the arguments must be to live memory, or one past its end.
bool check_pointers(const LaunchRequest& r) {
  for (const auto& [index, p] : r.pointers) {
    if (p == nullptr) continue;
    Allocation* a = find_allocation(p);
    if (a != nullptr && a->live) {
      if (const std::string wrong = checker::note_use(*a); !wrong.empty())
        report(Problem::stream_race,
               fmt::format("argument {} of {}: {}", index, describe(r), wrong));
      continue;
    }
    report(a != nullptr           ? Problem::use_after_free
           : is_device_address(p) ? Problem::out_of_bounds
                                  : Problem::host_pointer,
           fmt::format("argument {} of {} is {}", index, describe(r),
                       is_device_address(p) ? describe_place(p) : "a pointer to host memory"));
    corrupt_context(cudaErrorIllegalAddress);
    return false;
  }
  return true;
}

}  // namespace

cudaError_t launch(LaunchRequest request) {
  const Call call;
  if (call.error() != cudaSuccess) return call.error();
  if (executing != nullptr) return fail_with(cudaErrorNotSupported, "a kernel launches a kernel");
  if (const cudaError_t error = check_limits(request); error != cudaSuccess) return error;
  const size_t limit = std::max(dynamic_limit(request.kernel), shared_bytes_default);
  const cudaStream_t stream = request.stream;
  return submit(stream, {[r = std::move(request), limit] {
                  begin_shared_launch(r.shared, limit);
                  if (check_pointers(r)) run_grid(r);
                }});
}

void reset_attributes() {
  dynamic_limits().clear();
}

}  // namespace minim::emulator

using namespace minim::emulator;

extern "C" {

cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value) {
  const Call call;
  if (call.error() != cudaSuccess) return call.error();
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaSuccess;
  if (value < 0 || size_t(value) > shared_bytes_most)
    return fail_with(cudaErrorInvalidValue,
                     fmt::format("{} bytes of dynamic shared memory, of {} that there are", value,
                                 shared_bytes_most));
  dynamic_limits()[kernel] = size_t(value);
  return cudaSuccess;
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* kernel) {
  const Call call;
  *attributes = cudaFuncAttributes{};
  attributes->maxThreadsPerBlock = threads_most;
  attributes->maxDynamicSharedSizeBytes = int(dynamic_limit(kernel));
  return call.error();
}

cudaError_t cudaFuncGetName(const char** name, const void* kernel) {
  const Call call;
  static std::map<const void*, std::string> names;
  auto it = names.find(kernel);
  if (it == names.end()) it = names.emplace(kernel, function_name(kernel)).first;
  *name = it->second.c_str();
  return call.error();
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* kernel,
                                                          int threads, size_t shared) {
  const Call call;
  *blocks = 0;
  if (threads < 1 || threads > int(threads_most) || shared > dynamic_limit(kernel))
    return fail_with(cudaErrorInvalidValue, "the block cannot be launched");
  *blocks = std::min(2048 / ((threads + 31) / 32 * 32), 32);
  if (shared > 0) *blocks = std::min(*blocks, int(shared_bytes_most / shared));
  return call.error();
}
}
