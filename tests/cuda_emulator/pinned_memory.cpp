#include "tests/cuda_emulator/pinned_memory.h"

#include <cstdint>
#include <map>
#include <sys/mman.h>

#include <fmt/format.h>

#include "tests/cuda_emulator/fault.h"

namespace minim::emulator {

namespace {

struct Pending {
  Ticket ticket;
  bool written;
};

struct Buffer {
  size_t bytes = 0;   // asked for
  size_t mapped = 0;  // whole pages
  std::vector<Pending> pending;
};

std::map<uintptr_t, Buffer>& buffers() {
  static std::map<uintptr_t, Buffer> all;
  return all;
}

using Entry = std::map<uintptr_t, Buffer>::iterator;

Entry find(const void* address) {
  const auto a = uintptr_t(address);
  Entry it = buffers().upper_bound(a);
  if (it == buffers().begin()) return buffers().end();
  --it;
  return a < it->first + it->second.mapped ? it : buffers().end();
}

void protect(Entry it) {
  int rights = PROT_READ | PROT_WRITE;
  for (const Pending& p : it->second.pending)
    rights &= p.written ? PROT_NONE : PROT_READ;
  mprotect(reinterpret_cast<void*>(it->first), it->second.mapped, rights);
}

}  // namespace

void* allocate_pinned(size_t bytes) {
  const size_t mapped = (std::max<size_t>(bytes, 1) + 4095) / 4096 * 4096;
  void* p = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) return nullptr;
  buffers()[uintptr_t(p)] = {bytes, mapped, {}};
  return p;
}

bool free_pinned(void* address) {
  const Entry it = buffers().find(uintptr_t(address));
  if (it == buffers().end()) return false;
  munmap(address, it->second.mapped);
  buffers().erase(it);
  return true;
}

bool is_pinned(const void* address) {
  return find(address) != buffers().end();
}

size_t pinned_room(const void* address) {
  const Entry it = find(address);
  const size_t offset = it == buffers().end() ? 0 : uintptr_t(address) - it->first;
  return it == buffers().end() || offset > it->second.bytes ? 0 : it->second.bytes - offset;
}

void start_pinned_use(const PinnedUse& use, const Ticket& ticket) {
  const Entry it = find(use.address);
  if (it == buffers().end()) return;
  catch_faults();
  it->second.pending.push_back({ticket, use.written});
  protect(it);
}

void finish_pinned_uses(const Clock& host) {
  for (Entry it = buffers().begin(); it != buffers().end(); ++it) {
    if (it->second.pending.empty()) continue;
    if (std::erase_if(it->second.pending, [&](const Pending& p) { return host.covers(p.ticket); }) >
        0)
      protect(it);
  }
}

void open_pinned(const void* address) {
  const Entry it = find(address);
  if (it != buffers().end() && !it->second.pending.empty())
    mprotect(reinterpret_cast<void*>(it->first), it->second.mapped, PROT_READ | PROT_WRITE);
}

void close_pinned(const void* address) {
  const Entry it = find(address);
  if (it != buffers().end() && !it->second.pending.empty()) protect(it);
}

std::string describe_pinned_fault(const void* address) {
  const Entry it = find(address);
  if (it == buffers().end() || it->second.pending.empty()) return "";
  bool written = false;
  for (const Pending& p : it->second.pending)
    written = written || p.written;
  it->second.pending.clear();
  protect(it);
  return written ? fmt::format(
                       "the host uses byte {} of a pinned buffer of {} bytes that a copy "
                       "on a stream writes, without waiting for it",
                       uintptr_t(address) - it->first, it->second.bytes)
                 : fmt::format(
                       "the host writes byte {} of a pinned buffer of {} bytes that a copy "
                       "on a stream reads, without waiting for it",
                       uintptr_t(address) - it->first, it->second.bytes);
}

std::vector<std::string> live_pinned() {
  std::vector<std::string> lines;
  for (const auto& [begin, buffer] : buffers())
    lines.push_back(fmt::format("pinned buffer of {} bytes", buffer.bytes));
  return lines;
}

void reset_pinned() {
  while (!buffers().empty())
    free_pinned(reinterpret_cast<void*>(buffers().begin()->first));
}

}  // namespace minim::emulator
