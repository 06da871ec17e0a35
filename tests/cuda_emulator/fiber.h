#pragma once

#include <cstddef>

// Stacks that a block's threads run on, switched between without a system call.
namespace minim::emulator {

// A stack with a point of execution. A default-made one stands for the thread of the host.
class Fiber {
 public:
  Fiber() = default;
  // A new stack that will run entry(), which must never return. `index` shifts where the stack
  // starts: fibers whose frames lay at equal distances would push each other out of the cache.
  Fiber(size_t bytes, unsigned index, void (*entry)());
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Leaves `from` where it is and continues `to`.
  static void switch_to(Fiber& from, Fiber& to);
  // What entry() calls first.
  static void entered();
  // Forgets where it is; the next switch runs entry() anew.
  void restart();
  // Takes the bounds of the calling host thread's stack, which AddressSanitizer asks for.
  void adopt_host_stack();

  // Is this address on the stack, or in the guard page below it?
  bool holds(const void* address) const;
  bool guards(const void* address) const;

  unsigned thread = 0;  // of the block: whose point of execution this is

 private:
  void* point_ = nullptr;
  char* stack_ = nullptr;
  size_t bytes_ = 0;
  size_t shift_ = 0;
  bool owned_ = false;
  void (*entry_)() = nullptr;
  void* fake_stack_ = nullptr;
};

}  // namespace minim::emulator
