#include "tests/cuda_emulator/device_memory.h"

#include <cstring>
#include <map>
#include <new>
#include <sys/mman.h>

#include <fmt/format.h>

#include "tests/cuda_emulator/checker.h"
#include "tests/cuda_emulator/emulator.h"
#include "tests/cuda_emulator/fault.h"
#include "tests/cuda_emulator/findings.h"
#include "tests/cuda_emulator/sanitizer.h"

namespace minim::emulator {

namespace {

constexpr size_t arena_bytes = size_t(256) << 30;  // of addresses; memory only where it is used
constexpr size_t arena_step = size_t(2) << 20;     // huge pages make protecting fast
constexpr size_t alignment = 256;                  // as cudaMalloc's
constexpr size_t gap = 256;                        // behind each allocation, at least
constexpr unsigned char gap_byte = 0xa5;

char* arena = nullptr;
size_t arena_used = gap;
size_t opened = 0;  // bytes of the arena that are accessible while it is open
size_t in_use = 0;
uint64_t serials = 0;
thread_local int open_depth = 0;

std::map<uintptr_t, std::unique_ptr<Allocation>>& allocations() {
  static std::map<uintptr_t, std::unique_ptr<Allocation>> all;
  return all;
}

void start() {
  void* p = mmap(nullptr, arena_bytes + arena_step, PROT_NONE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) throw std::bad_alloc();
  arena = reinterpret_cast<char*>((uintptr_t(p) + arena_step - 1) / arena_step * arena_step);
  madvise(arena, arena_bytes, MADV_HUGEPAGE);
}

void protect(bool accessible) {
  if (opened > 0) mprotect(arena, opened, accessible ? PROT_READ | PROT_WRITE : PROT_NONE);
}

}  // namespace

std::string Allocation::describe() const {
  return fmt::format("allocation {} of {} bytes{}", serial, bytes, live ? "" : ", which is freed");
}

Allocation* allocate_device(size_t bytes, const Ticket& created) {
  if (arena == nullptr) start();
  const size_t need = (bytes + alignment - 1) / alignment * alignment + gap;
  if (in_use + bytes > options().device_bytes || arena_used + need > arena_bytes) return nullptr;
  const size_t end = (arena_used + need + arena_step - 1) / arena_step * arena_step;
  if (end > opened) {
    sanitizer::poison(arena + opened, end - opened);
    const bool accessible = open_depth > 0 || !options().protect;
    mprotect(arena + opened, end - opened, accessible ? PROT_READ | PROT_WRITE : PROT_NONE);
    opened = end;
  }
  auto made = std::make_unique<Allocation>();
  made->begin = uintptr_t(arena) + arena_used;
  made->bytes = bytes;
  made->serial = ++serials;
  made->created = created;
  if (checker::enabled()) made->shadow.reset(bytes);
  arena_used += need;
  in_use += bytes;
  auto* begin = reinterpret_cast<char*>(made->begin);
  sanitizer::unpoison(begin, bytes);
  const DeviceOpen open;
  std::memset(begin, 0xff, bytes);
  if (!sanitizer::active) std::memset(begin + bytes, gap_byte, need - bytes);
  return (allocations()[made->begin] = std::move(made)).get();
}

void free_device(Allocation& a) {
  a.live = false;
  in_use -= a.bytes;
  a.shadow.release();
  auto* begin = reinterpret_cast<char*>(a.begin);
  if (!sanitizer::active) {
    const size_t behind = (a.bytes + alignment - 1) / alignment * alignment + gap - a.bytes;
    size_t changed = 0;
    {
      const DeviceOpen open;
      for (size_t i = 0; i < behind; ++i)
        changed += static_cast<unsigned char>(begin[a.bytes + i]) != gap_byte;
    }
    if (changed > 0)
      report(Problem::overrun,
             fmt::format("{} bytes behind {} were written", changed, a.describe()));
  }
  sanitizer::poison(begin, a.bytes);
  const uintptr_t first = (a.begin + 4095) / 4096 * 4096;
  const uintptr_t last = a.end() / 4096 * 4096;
  if (last > first) madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
}

Allocation* find_allocation(const void* address) {
  const auto a = uintptr_t(address);
  auto it = allocations().upper_bound(a);
  if (it == allocations().begin()) return nullptr;
  --it;
  return a <= it->second->end() ? it->second.get() : nullptr;
}

std::string describe_place(const void* address) {
  const auto a = uintptr_t(address);
  auto it = allocations().upper_bound(a);
  if (it == allocations().begin()) return fmt::format("{}, before all device memory", address);
  const Allocation& near = *std::prev(it)->second;
  return a < near.end() ? fmt::format("byte {} of {}", a - near.begin, near.describe())
                        : fmt::format("{} bytes behind {}", a - near.end(), near.describe());
}

bool is_device_address(const void* address) {
  return arena != nullptr && uintptr_t(address) - uintptr_t(arena) < arena_bytes;
}

size_t device_bytes_in_use() {
  return in_use;
}

std::vector<std::string> live_allocations() {
  std::vector<std::string> lines;
  for (const auto& [begin, a] : allocations())
    if (a->live) lines.push_back(a->describe());
  return lines;
}

void reset_device_memory() {
  for (const auto& [begin, a] : allocations())
    if (a->live) sanitizer::poison(reinterpret_cast<void*>(begin), a->bytes);
  allocations().clear();
  in_use = 0;
  serials = 0;
  if (opened > 0) {
    protect(false);
    madvise(arena, opened, MADV_DONTNEED);
  }
}

void uncover_device_memory() {
  if (options().protect) protect(true);
}

DeviceOpen::DeviceOpen() {
  if (open_depth == 0) catch_faults();
  if (open_depth++ == 0 && options().protect) protect(true);
}

DeviceOpen::~DeviceOpen() {
  if (--open_depth == 0 && options().protect) protect(false);
}

}  // namespace minim::emulator
