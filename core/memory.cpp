#include "core/memory.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/error.h"

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

struct Ledger {
  std::mutex mutex;
  std::array<int64_t, categories> current{}, peak{};
  int64_t total = 0, total_peak = 0, system_allocations = 0;
  std::unordered_map<size_t, std::vector<void*>> pool;

  void add(Category category, int64_t bytes) {
    int64_t& now = current[size_t(category)];
    now += bytes;
    total += bytes;
    peak[size_t(category)] = std::max(peak[size_t(category)], now);
    total_peak = std::max(total_peak, total);
  }
};

// Never destroyed: tensors in static storage may outlive any other static object.
Ledger& ledger() {
  static auto* instance = new Ledger;
  return *instance;
}

thread_local Category innermost = Category::activations;

void free_pool(Ledger& books) {
  for (auto& [size, blocks] : books.pool)
    for (void* block : blocks)
      std::free(block);
  books.pool.clear();
}

[[noreturn]] void fail_out_of_memory(Ledger& books, size_t bytes) {
  std::string use;
  for (size_t c = 0; c < categories; ++c)
    if (books.current[c] > 0)
      use += fmt::format("{}{} {:.1f} MiB", use.empty() ? "" : ", ", name_of(Category(c)),
                         double(books.current[c]) / 0x1p20);
  fail(
      "memory: the system refused {} bytes; in use: {}; a smaller batch or shorter sequences need "
      "less",
      bytes, use.empty() ? "nothing" : use);
}

}  // namespace

std::string_view name_of(Category category) {
  constexpr std::string_view names[] = {"weights",     "gradients", "optimizer state",
                                        "activations", "workspace", "data"};
  return names[size_t(category)];
}

int64_t current(Category category) {
  Ledger& books = ledger();
  const std::lock_guard lock(books.mutex);
  return books.current[size_t(category)];
}

int64_t peak(Category category) {
  Ledger& books = ledger();
  const std::lock_guard lock(books.mutex);
  return books.peak[size_t(category)];
}

int64_t current() {
  Ledger& books = ledger();
  const std::lock_guard lock(books.mutex);
  return books.total;
}

int64_t peak() {
  Ledger& books = ledger();
  const std::lock_guard lock(books.mutex);
  return books.total_peak;
}

void reset_peak() {
  Ledger& books = ledger();
  const std::lock_guard lock(books.mutex);
  books.peak = books.current;
  books.total_peak = books.total;
}

int64_t system_allocations() {
  Ledger& books = ledger();
  const std::lock_guard lock(books.mutex);
  return books.system_allocations;
}

void release_pool() {
  Ledger& books = ledger();
  const std::lock_guard lock(books.mutex);
  free_pool(books);
}

void poison_pool(uint8_t byte) {
  Ledger& books = ledger();
  const std::lock_guard lock(books.mutex);
  for (auto& [size, blocks] : books.pool)
    for (void* block : blocks)
      std::memset(block, byte, size);
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

void* allocate(size_t bytes, Category category) {
  Ledger& books = ledger();
  const std::lock_guard lock(books.mutex);
  // No machine has 2^62 bytes; refusing them here keeps the rounding below from overflowing.
  if (bytes > size_t(1) << 62) fail_out_of_memory(books, bytes);
  const size_t size = pool_size(bytes);
  void* block = nullptr;
  if (auto it = books.pool.find(size); it != books.pool.end() && !it->second.empty()) {
    block = it->second.back();
    it->second.pop_back();
  } else {
    block = std::aligned_alloc(alignment, size);
    if (block == nullptr) {
      free_pool(books);
      block = std::aligned_alloc(alignment, size);
    }
    if (block == nullptr) fail_out_of_memory(books, bytes);
    ++books.system_allocations;
  }
  books.add(category, int64_t(bytes));
  return block;
}

void deallocate(void* pointer, size_t bytes, Category category) noexcept {
  Ledger& books = ledger();
  const std::lock_guard lock(books.mutex);
  books.add(category, -int64_t(bytes));
  if (pooling)
    books.pool[pool_size(bytes)].push_back(pointer);
  else
    std::free(pointer);
}

void recount(size_t bytes, Category from, Category to) {
  Ledger& books = ledger();
  const std::lock_guard lock(books.mutex);
  books.add(from, -int64_t(bytes));
  books.add(to, int64_t(bytes));
}

}  // namespace minim::memory
