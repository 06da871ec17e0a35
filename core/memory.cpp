#include "core/memory.h"

#include <algorithm>
#include <mutex>
#include <new>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/backend.h"
#include "core/error.h"
#include "core/memory_advice.h"

namespace minim::memory {

namespace {

constexpr size_t alignment = 64;

// AddressSanitizer sees a use after free only if freed memory really goes back.
#if defined(__SANITIZE_ADDRESS__)
constexpr bool pooling = false;
#else
constexpr bool pooling = true;
#endif

// Sizes are rounded up to eight steps per power of two, so that batches of changing length reuse
// each other's memory at a loss of at most 1/8.
size_t pool_size(size_t bytes) {
  if (bytes <= alignment) return alignment;
  size_t step = alignment;
  while (step * 16 <= bytes)
    step *= 2;
  return (bytes + step - 1) / step * step;
}

// What is in use and what lies in the pool of one device.
struct Ledger {
  std::mutex mutex;
  std::array<int64_t, categories> current{}, peak{};
  int64_t total = 0, total_peak = 0, system_allocations = 0;
  std::unordered_map<size_t, std::vector<void*>> pool;
  std::unordered_map<void*, Segment*> segments;  // of blocks that belong to one

  void add(Category category, int64_t bytes) {
    int64_t& now = current[size_t(category)];
    now += bytes;
    total += bytes;
    peak[size_t(category)] = std::max(peak[size_t(category)], now);
    total_peak = std::max(total_peak, total);
  }
};

// Never destroyed: tensors in static storage may outlive any other static object.
Ledger& ledger(Device device) {
  static auto* instances = new std::array<Ledger, 1 + Device::most_cuda>;
  return (*instances)[device.is_cpu() ? 0 : size_t(1 + device.index())];
}

// Calls use(device, books) for each device.
template <class Use>
void for_each_ledger(const Use& use) {
  for (int i = -1; i < Device::most_cuda; ++i) {
    const Device device = i < 0 ? Device::cpu() : Device::cuda(i);
    Ledger& books = ledger(device);
    const std::lock_guard lock(books.mutex);
    use(device, books);
  }
}

thread_local Category innermost = Category::activations;
thread_local Segment* segment_in_use = nullptr;

void free_pool(Device device, Ledger& books) {
  for (auto& [size, blocks] : books.pool)
    for (void* block : blocks)
      backend(device).release(device, block);
  books.pool.clear();
}

[[noreturn]] void fail_out_of_memory(Device device, Ledger& books, size_t bytes,
                                     std::unique_lock<std::mutex>& lock) {
  constexpr double mebibyte = 0x1p20;
  std::string use;
  for (size_t c = 0; c < categories; ++c)
    if (books.current[c] > 0)
      use += fmt::format("{}{} {:.1f} MiB", use.empty() ? "" : ", ", name_of(Category(c)),
                         double(books.current[c]) / mebibyte);
  if (use.empty()) use = "nothing";
  lock.unlock();  // who gives advice may look at tensors
  if (device.is_cpu())
    fail("memory: the system refused {} bytes; in use: {}; {}", bytes, use, advice());
  fail("memory: {} has no {} bytes left, {:.1f} MiB are free; in use: {}; {}", device, bytes,
       double(backend(device).free_bytes(device)) / mebibyte, use, advice());
}

}  // namespace

std::string_view name_of(Category category) {
  constexpr std::string_view names[] = {"weights",     "gradients", "optimizer state",
                                        "activations", "workspace", "data"};
  return names[size_t(category)];
}

int64_t current(Category category, Device device) {
  Ledger& books = ledger(device);
  const std::lock_guard lock(books.mutex);
  return books.current[size_t(category)];
}

int64_t peak(Category category, Device device) {
  Ledger& books = ledger(device);
  const std::lock_guard lock(books.mutex);
  return books.peak[size_t(category)];
}

int64_t current(Device device) {
  Ledger& books = ledger(device);
  const std::lock_guard lock(books.mutex);
  return books.total;
}

int64_t peak(Device device) {
  Ledger& books = ledger(device);
  const std::lock_guard lock(books.mutex);
  return books.total_peak;
}

void reset_peak() {
  for_each_ledger([](Device, Ledger& books) {
    books.peak = books.current;
    books.total_peak = books.total;
  });
}

int64_t system_allocations(Device device) {
  Ledger& books = ledger(device);
  const std::lock_guard lock(books.mutex);
  return books.system_allocations;
}

void release_pool() {
  for_each_ledger([](Device device, Ledger& books) { free_pool(device, books); });
}

void poison_pool(uint8_t byte) {
  for_each_ledger([byte](Device device, Ledger& books) {
    for (auto& [size, blocks] : books.pool)
      for (void* block : blocks)
        backend(device).set(device, block, byte, size);
  });
}

Scope::Scope(Category category) : before_(innermost) {
  innermost = category;
}

Scope::~Scope() {
  innermost = before_;
}

Category Scope::category() {
  return innermost;
}

void* allocate(size_t bytes, Category category, Device device) {
  Ledger& books = ledger(device);
  const Backend& system = backend(device);
  std::unique_lock lock(books.mutex);
  // No machine has 2^62 bytes; refusing them here keeps the rounding below from overflowing.
  if (bytes > size_t(1) << 62) fail_out_of_memory(device, books, bytes, lock);
  const size_t size = pool_size(bytes);
  void* block = nullptr;
  Segment* const segment =
      segment_in_use != nullptr && segment_in_use->device_ == device ? segment_in_use : nullptr;
  if (segment != nullptr)
    if (auto& idle = segment->idle_[size]; !idle.empty()) {
      books.add(idle.back().category, -int64_t(idle.back().bytes));
      block = idle.back().block;
      idle.pop_back();
      books.add(category, int64_t(bytes));
      return block;
    }
  if (auto it = books.pool.find(size); it != books.pool.end() && !it->second.empty()) {
    block = it->second.back();
    it->second.pop_back();
  } else {
    block = system.allocate(device, size);
    if (block == nullptr) {
      free_pool(device, books);
      block = system.allocate(device, size);
    }
    if (block == nullptr) fail_out_of_memory(device, books, bytes, lock);
    ++books.system_allocations;
  }
  if (segment != nullptr) books.segments[block] = segment;
  books.add(category, int64_t(bytes));
  return block;
}

void deallocate(void* pointer, size_t bytes, Category category, Device device) noexcept {
  Ledger& books = ledger(device);
  const std::lock_guard lock(books.mutex);
  if (!books.segments.empty())
    if (const auto found = books.segments.find(pointer); found != books.segments.end()) {
      found->second->idle_[pool_size(bytes)].push_back({pointer, bytes, category});
      return;
    }
  books.add(category, -int64_t(bytes));
  if (pooling || device.is_cuda())
    books.pool[pool_size(bytes)].push_back(pointer);
  else
    backend(device).release(device, pointer);
}

Segment::Segment(Device device) : device_(device) {
  check(device.is_cuda(), "memory: a segment is of a CUDA device, not {}", device);
}

Segment::~Segment() {
  Ledger& books = ledger(device_);
  const std::lock_guard lock(books.mutex);
  std::erase_if(books.segments, [this](const auto& entry) { return entry.second == this; });
  for (const auto& [size, blocks] : idle_)
    for (const Idle& idle : blocks) {
      books.add(idle.category, -int64_t(idle.bytes));
      books.pool[size].push_back(idle.block);
    }
}

int64_t Segment::idle() const {
  const std::lock_guard lock(ledger(device_).mutex);
  int64_t bytes = 0;
  for (const auto& [size, blocks] : idle_)
    for (const Idle& idle : blocks)
      bytes += int64_t(idle.bytes);
  return bytes;
}

Segment::Use::Use(Segment& segment) : before_(segment_in_use) {
  segment_in_use = &segment;
}

Segment::Use::~Use() {
  segment_in_use = before_;
}

void recount(size_t bytes, Category from, Category to, Device device) {
  Ledger& books = ledger(device);
  const std::lock_guard lock(books.mutex);
  books.add(from, -int64_t(bytes));
  books.add(to, int64_t(bytes));
}

}  // namespace minim::memory
