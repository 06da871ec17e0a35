#include "tests/cuda_emulator/fiber.h"

#include <cstdint>
#include <new>
#include <pthread.h>
#include <sys/mman.h>
#if !defined(__x86_64__)
#include <ucontext.h>
#endif

#include "tests/cuda_emulator/sanitizer.h"

namespace minim::emulator {

namespace {

constexpr size_t guard_bytes = 1 << 20;  // a large frame may begin far below the stack

}  // namespace

#if defined(__x86_64__)

// Saves what a called function must keep, and exchanges stacks; six times faster than ucontext,
// which asks the system for the signal mask.
extern "C" void minim_emulator_switch(void** leave, void* enter);
asm(R"(
.text
.type minim_emulator_switch,@function
minim_emulator_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
.size minim_emulator_switch,.-minim_emulator_switch
)");

void Fiber::restart() {
  sanitizer::unpoison(stack_, bytes_);  // of frames that were never left
  auto** top = reinterpret_cast<void**>(stack_ + bytes_ - shift_);
  *--top = nullptr;                          // where entry() would return to
  *--top = reinterpret_cast<void*>(entry_);  // the switch returns into it
  for (int i = 0; i < 6; ++i)
    *--top = nullptr;
  point_ = top;
}

#else

void Fiber::restart() {
  sanitizer::unpoison(stack_, bytes_);
  auto* context = static_cast<ucontext_t*>(point_ == nullptr ? new ucontext_t : point_);
  getcontext(context);
  context->uc_stack.ss_sp = stack_;
  context->uc_stack.ss_size = bytes_;
  context->uc_link = nullptr;
  makecontext(context, entry_, 0);
  point_ = context;
}

static void minim_emulator_switch(void** leave, void* enter) {
  if (*leave == nullptr) *leave = new ucontext_t;
  swapcontext(static_cast<ucontext_t*>(*leave), static_cast<ucontext_t*>(enter));
}

#endif

Fiber::Fiber(size_t bytes, unsigned index, void (*entry)())
    : bytes_(bytes), shift_(index % 61 * 64), owned_(true), entry_(entry) {
  void* memory = mmap(nullptr, bytes + guard_bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  mprotect(memory, guard_bytes, PROT_NONE);
  stack_ = static_cast<char*>(memory) + guard_bytes;
  restart();
}

Fiber::~Fiber() {
  if (!owned_) return;
  sanitizer::unpoison(stack_, bytes_);
  munmap(stack_ - guard_bytes, bytes_ + guard_bytes);
#if !defined(__x86_64__)
  delete static_cast<ucontext_t*>(point_);
#endif
}

void Fiber::switch_to(Fiber& from, Fiber& to) {
  sanitizer::start_switch(&from.fake_stack_, to.stack_, to.bytes_);
#if defined(__x86_64__)
  minim_emulator_switch(&from.point_, to.point_);
#else
  minim_emulator_switch(&from.point_, to.point_);
#endif
  sanitizer::finish_switch(from.fake_stack_);
}

void Fiber::entered() {
  sanitizer::finish_switch(nullptr);
}

void Fiber::adopt_host_stack() {
  if (!sanitizer::active) return;
  static thread_local char* stack = nullptr;  // asking takes half a millisecond
  static thread_local size_t bytes = 0;
  if (stack == nullptr) {
    pthread_attr_t attributes;
    pthread_getattr_np(pthread_self(), &attributes);
    void* lowest = nullptr;
    pthread_attr_getstack(&attributes, &lowest, &bytes);
    pthread_attr_destroy(&attributes);
    stack = static_cast<char*>(lowest);
  }
  stack_ = stack;
  bytes_ = bytes;
}

bool Fiber::holds(const void* address) const {
  return uintptr_t(address) - uintptr_t(stack_) < bytes_;
}

bool Fiber::guards(const void* address) const {
  return uintptr_t(stack_) - 1 - uintptr_t(address) < guard_bytes;
}

}  // namespace minim::emulator
