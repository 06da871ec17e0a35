#include "tests/cuda_emulator/shared_memory.h"

#include <algorithm>
#include <cstring>
#include <deque>

#include <fmt/format.h>

#include "tests/cuda_emulator/block.h"
#include "tests/cuda_emulator/checker.h"
#include "tests/cuda_emulator/sanitizer.h"

namespace minim::emulator {

namespace {

constexpr size_t capacity = 512 << 10;
constexpr size_t gap = 32;  // behind each variable

alignas(4096) char arena[capacity];
std::deque<SharedVariable> variables;  // [0]: the dynamic part; from `known` on of earlier blocks
size_t known = 0;
size_t dynamic_bytes = 0;
size_t most_bytes = 0;
size_t used = 0;   // with gaps
size_t asked = 0;  // without
uint64_t serial = 0;

SharedVariable& add(const void* key, size_t bytes, size_t alignment) {
  const size_t at = (used + alignment - 1) / alignment * alignment;
  used = at + bytes + gap;
  asked += bytes;
  if (known == variables.size()) variables.emplace_back();
  SharedVariable& v = variables[known++];
  v.key = key;
  v.begin = uintptr_t(arena) + at;
  v.bytes = bytes;
  if (checker::enabled()) v.shadow.reset(bytes);
  sanitizer::unpoison(arena + at, bytes);
  std::memset(arena + at, 0xff, bytes);
  return v;
}

}  // namespace

void begin_shared_launch(size_t bytes, size_t most) {
  dynamic_bytes = bytes;
  most_bytes = most;
}

void begin_shared_block() {
  ++serial;
  known = used = asked = 0;
  sanitizer::poison(arena, capacity);
  add(nullptr, dynamic_bytes, 16);
}

void end_shared_launch() {
  known = 0;
  ++serial;
}

bool is_shared_address(const void* address) {
  return uintptr_t(address) - uintptr_t(arena) < capacity;
}

SharedVariable* find_shared(const void* address) {
  for (size_t i = 0; i < known; ++i)
    if (uintptr_t(address) - variables[i].begin < variables[i].bytes) return &variables[i];
  return nullptr;
}

uint64_t block_serial() {
  return serial;
}

void* dynamic_shared_storage() {
  return arena;
}

void* shared_storage(const void* key, size_t bytes, size_t alignment) {
  for (size_t i = 1; i < known; ++i)
    if (variables[i].key == key) return reinterpret_cast<void*>(variables[i].begin);
  // nvcc refuses the first; a real launch fails for the second.
  if (asked - dynamic_bytes + bytes > shared_bytes_default)
    stop_kernel(Problem::out_of_bounds,
                fmt::format("the shared variables of a kernel take {} bytes, more than the {} that "
                            "there are",
                            asked - dynamic_bytes + bytes, shared_bytes_default));
  if (asked + bytes > most_bytes)
    stop_kernel(Problem::out_of_bounds,
                fmt::format("shared variables and {} bytes of dynamic shared memory take {} bytes, "
                            "more than the {} that the kernel may use",
                            dynamic_bytes, asked + bytes, most_bytes));
  return reinterpret_cast<void*>(add(key, bytes, std::max<size_t>(alignment, 16)).begin);
}

}  // namespace minim::emulator
