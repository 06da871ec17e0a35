#include "tests/cuda_emulator/device_memory.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <new>
#include <set>
#include <sys/mman.h>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "tests/cuda_emulator/checker.h"
#include "tests/cuda_emulator/emulator.h"
#include "tests/cuda_emulator/fault.h"
#include "tests/cuda_emulator/findings.h"
#include "tests/cuda_emulator/sanitizer.h"

namespace minim::emulator {

namespace {

constexpr size_t arena_bytes = size_t(256) << 30;  // of addresses; memory only where it is used
constexpr size_t chunk_bytes = size_t(2) << 20;    // huge pages make protecting fast
constexpr size_t alignment = 256;                  // as cudaMalloc's
constexpr size_t gap = 256;                        // behind each allocation, at least
constexpr unsigned char gap_byte = 0xa5;

char* arena = nullptr;
size_t arena_used = gap;
// How many live allocations lie in each chunk. Only chunks that have any are ever accessible; they
// are opened and closed run by run.
std::vector<uint32_t> chunks;
std::set<size_t> live_chunks;
std::vector<std::pair<size_t, size_t>> runs;  // of live chunks: first, count
bool runs_changed = false;
size_t in_use = 0;
uint64_t serials = 0;
int open_depth = 0;

std::map<uintptr_t, std::unique_ptr<Allocation>>& allocations() {
  static std::map<uintptr_t, std::unique_ptr<Allocation>> all;
  return all;
}

void start() {
  void* p = mmap(nullptr, arena_bytes + chunk_bytes, PROT_NONE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) throw std::bad_alloc();
  arena = reinterpret_cast<char*>((uintptr_t(p) + chunk_bytes - 1) / chunk_bytes * chunk_bytes);
  madvise(arena, arena_bytes, MADV_HUGEPAGE);
}

void set_rights(size_t first_chunk, size_t count, bool accessible) {
  mprotect(arena + first_chunk * chunk_bytes, count * chunk_bytes,
           accessible ? PROT_READ | PROT_WRITE : PROT_NONE);
}

void protect(bool accessible) {
  if (runs_changed) {
    runs.clear();
    for (const size_t chunk : live_chunks)
      if (!runs.empty() && runs.back().first + runs.back().second == chunk)
        ++runs.back().second;
      else
        runs.emplace_back(chunk, 1);
    runs_changed = false;
  }
  for (const auto& [first, count] : runs)
    set_rights(first, count, accessible);
}

// What an allocation takes, with the gap behind it.
size_t space_for(size_t bytes) {
  return (bytes + alignment - 1) / alignment * alignment + gap;
}

// Counts an allocation in or out of its chunks. Empty ones give their memory back, as a whole: what
// is left of a huge page that was given back in part would make opening and closing slower.
void count_in_chunks(const Allocation& a, bool alive) {
  const size_t first = (a.begin - uintptr_t(arena)) / chunk_bytes;
  const size_t last = (a.begin + space_for(a.bytes) - 1 - uintptr_t(arena)) / chunk_bytes;
  if (chunks.size() <= last) {
    const size_t known = chunks.size();
    chunks.resize(last + 1);
    sanitizer::poison(arena + known * chunk_bytes, (last + 1 - known) * chunk_bytes);
  }
  for (size_t i = first; i <= last; ++i) {
    const bool was_alive = chunks[i] > 0;
    chunks[i] += alive ? 1u : ~0u;
    if (was_alive == (chunks[i] > 0)) continue;
    runs_changed = true;
    if (alive) {
      live_chunks.insert(i);
      set_rights(i, 1, open_depth > 0 || !options().protect);
    } else {
      live_chunks.erase(i);
      set_rights(i, 1, false);
      madvise(arena + i * chunk_bytes, chunk_bytes, MADV_DONTNEED);
    }
  }
}

}  // namespace

std::string Allocation::describe() const {
  return fmt::format("allocation {} of {} bytes{}", serial, bytes, live ? "" : ", which is freed");
}

Allocation* allocate_device(size_t bytes, const Ticket& created) {
  if (arena == nullptr) start();
  const size_t need = space_for(bytes);
  if (in_use + bytes > options().device_bytes || arena_used + need > arena_bytes) return nullptr;
  auto made = std::make_unique<Allocation>();
  made->begin = uintptr_t(arena) + arena_used;
  made->bytes = bytes;
  made->serial = ++serials;
  made->created = created;
  if (checker::enabled()) made->shadow.reset(bytes);
  arena_used += need;
  in_use += bytes;
  auto* begin = reinterpret_cast<char*>(made->begin);
  count_in_chunks(*made, true);
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
    const size_t behind = space_for(a.bytes) - a.bytes;
    size_t changed = 0;
    {
      const DeviceOpen open;
      for (size_t i = 0; i < behind; ++i)
        changed += static_cast<unsigned char>(begin[a.bytes + i]) != gap_byte;
      std::memset(begin, 0xff, a.bytes);  // who uses it nevertheless gets NaN
    }
    if (changed > 0)
      report(Problem::overrun,
             fmt::format("{} bytes behind {} were written", changed, a.describe()));
  }
  sanitizer::poison(begin, a.bytes);
  count_in_chunks(a, false);
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
  for (const size_t chunk : live_chunks) {
    chunks[chunk] = 0;
    set_rights(chunk, 1, false);
    madvise(arena + chunk * chunk_bytes, chunk_bytes, MADV_DONTNEED);
  }
  live_chunks.clear();
  runs_changed = true;
}

void uncover_device_memory(const void* address) {
  set_rights((uintptr_t(address) - uintptr_t(arena)) / chunk_bytes, 1, true);
}

DeviceOpen::DeviceOpen() {
  if (open_depth == 0) catch_faults();
  if (open_depth++ == 0 && options().protect) protect(true);
}

DeviceOpen::~DeviceOpen() {
  if (--open_depth == 0 && options().protect) protect(false);
}

}  // namespace minim::emulator
