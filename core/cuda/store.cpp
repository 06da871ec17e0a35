#include "core/cuda/store.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "core/cuda/launch.h"

namespace minim::cuda {

namespace {

// Arguments of a kernel have 4 KiB.
constexpr size_t most_words = 960;

struct Words {
  uint32_t values[most_words];
};

__global__ void store_kernel(uint32_t* to, const Words words, int count) {
  for (int i = int(threadIdx.x); i < count; i += int(blockDim.x))
    to[i] = words.values[i];
}

}  // namespace

void store(void* to, const void* host, size_t bytes, cudaStream_t stream) {
  const size_t words = bytes / sizeof(uint32_t);
  for (size_t begin = 0; begin < words; begin += most_words) {
    const size_t count = std::min(most_words, words - begin);
    Words part{};
    std::memcpy(part.values, static_cast<const uint32_t*>(host) + begin, count * sizeof(uint32_t));
    launch(store_kernel, {.threads = {256}, .stream = stream}, static_cast<uint32_t*>(to) + begin,
           part, int(count));
  }
}

}  // namespace minim::cuda
