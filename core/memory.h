#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/device.h"

// Where every byte of tensor memory comes from, counted by what it is for, each device by itself.
namespace minim::memory {

// What an allocation is for. New tensors belong to the category of the innermost Scope.
enum class Category : uint8_t { weights, gradients, optimizer_state, activations, workspace, data };
inline constexpr size_t categories = 6;

// "weights", "gradients", "optimizer state", "activations", "workspace" or "data".
std::string_view name_of(Category category);

// Bytes in use by tensors of a category now, and the most there ever were since reset_peak().
int64_t current(Category category, Device device = Device::cpu());
int64_t peak(Category category, Device device = Device::cpu());

// The same over all categories; the peak is that of the sum, not the sum of the peaks.
int64_t current(Device device = Device::cpu());
int64_t peak(Device device = Device::cpu());
// Of all devices.
void reset_peak();

// Number of times memory was asked of the system (not served from the pool), for tests.
int64_t system_allocations(Device device = Device::cpu());

// Gives pooled memory that no tensor uses back to the system, of all devices.
void release_pool();

// Overwrites pooled memory that no tensor uses with one byte (0xff makes NaNs of all floats), so
// that a test sees who reads what it never wrote; of all devices.
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

// Memory from a device's pool, aligned to 64 bytes; throws Error naming bytes and use by category
// when the device has no more. The bytes are counted under the category until deallocate. Memory of
// a device may be deallocated while work that uses it is still waiting there: whoever gets it next
// uses it later.
void* allocate(size_t bytes, Category category, Device device = Device::cpu());
void deallocate(void* pointer, size_t bytes, Category category, Device device) noexcept;

// Memory of a device that nobody else gets, for work that is recorded with its addresses and run
// again: while a Use lives, this thread's memory of that device comes from it, and goes back to it
// whenever it is deallocated. What lies in it unused stays counted as what it was last used for.
class Segment {
 public:
  explicit Segment(Device device);
  // What is unused goes to the pool of all; what is in use goes there later.
  ~Segment();
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  class Use {
   public:
    explicit Use(Segment& segment);
    ~Use();
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;

   private:
    Segment* before_;
  };

  // Bytes that lie in it unused.
  int64_t idle() const;

 private:
  friend void* allocate(size_t bytes, Category category, Device device);
  friend void deallocate(void* pointer, size_t bytes, Category category, Device device) noexcept;
  struct Idle {
    void* block;
    size_t bytes;
    Category category;
  };

  Device device_;
  std::unordered_map<size_t, std::vector<Idle>> idle_;  // by size in the pool
};

// Moves bytes already counted from one category to another.
void recount(size_t bytes, Category from, Category to, Device device);

}  // namespace minim::memory
