#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

// Where every byte of tensor memory comes from, counted by what it is for.
namespace minim::memory {

// What an allocation is for. New tensors belong to the category of the innermost Scope.
enum class Category : uint8_t { weights, gradients, optimizer_state, activations, workspace, data };
inline constexpr size_t categories = 6;

// "weights", "gradients", "optimizer state", "activations", "workspace" or "data".
std::string_view name_of(Category category);

// Bytes in use by tensors of a category now, and the most there ever were since reset_peak().
int64_t current(Category category);
int64_t peak(Category category);

// The same over all categories; the peak is that of the sum, not the sum of the peaks.
int64_t current();
int64_t peak();
void reset_peak();

// Number of times memory was asked of the system (not served from the pool), for tests.
int64_t system_allocations();

// Gives pooled memory that no tensor uses back to the system.
void release_pool();

// Overwrites pooled memory that no tensor uses with one byte (0xff makes NaNs of all floats), so
// that a test sees who reads what it never wrote.
void poison_pool(uint8_t byte);

// While it lives, this thread's new tensors are counted under the category.
class Scope {
 public:
  explicit Scope(Category category);
  ~Scope();
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

  // The category of the innermost Scope; activations where there is none.
  static Category category();

 private:
  Category before_;
};

// 64-byte aligned memory from the pool; throws Error naming bytes and use by category when the
// system has no more. The bytes are counted under the current category until deallocate.
void* allocate(size_t bytes, Category category);
void deallocate(void* pointer, size_t bytes, Category category) noexcept;

// Moves bytes already counted from one category to another.
void recount(size_t bytes, Category from, Category to);

}  // namespace minim::memory
