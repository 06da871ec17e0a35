#include "core/backend.h"

#include <cstdlib>
#include <cstring>

namespace minim {

namespace {

constexpr Backend cpu_backend = {
    .allocate =
        [](Device, size_t bytes) {
          constexpr size_t alignment = 64;
          return std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
        },
    .release = [](Device, void* memory) { std::free(memory); },
    .free_bytes = [](Device) { return size_t(0); },
    .set =
        [](Device, void* to, int byte, size_t bytes) {
          if (bytes > 0) std::memset(to, byte, bytes);
        },
    .copy_in =
        [](Device, void* to, const void* host, size_t bytes) {
          if (bytes > 0) std::memcpy(to, host, bytes);
        },
    .copy_out =
        [](Device, void* host, const void* from, size_t bytes) {
          if (bytes > 0) std::memcpy(host, from, bytes);
        },
    .synchronize = [](Device) {},
};

}  // namespace

const Backend& backend(Device device) {
  return device.is_cpu() ? cpu_backend : cuda_backend();
}

}  // namespace minim
