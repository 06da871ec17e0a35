#include "tests/cuda_emulator/fault.h"

#include <csignal>

#include <fmt/format.h>

#include "tests/cuda_emulator/block.h"
#include "tests/cuda_emulator/device_memory.h"
#include "tests/cuda_emulator/findings.h"
#include "tests/cuda_emulator/pinned_memory.h"

namespace minim::emulator {

namespace {

struct sigaction previous_handler;

void on_fault(int, siginfo_t* info, void*) {
  const void* address = info->si_addr;
  if (executing != nullptr) {
    if (on_stack_guard(address))
      stop_kernel(Problem::stack_overflow, "a thread's local variables do not fit its stack");
    if (info->si_code == SI_KERNEL)  // the processor's own alignment check, which has no address
      stop_kernel(Problem::misaligned, "a vector's address, which its alignment does not divide");
    stop_kernel(Problem::out_of_bounds,
                is_device_address(address)
                    ? "access at " + describe_place(address)
                    : fmt::format("access at {}, where there is no memory", address));
  }
  // Where the program goes on, the access is repeated when this returns.
  if (is_device_address(address)) {
    uncover_device_memory(address);
    report(Problem::host_access,
           fmt::format("host code uses device memory, at {}", describe_place(address)));
    return;
  }
  if (const std::string text = describe_pinned_fault(address); !text.empty()) {
    report(Problem::pinned_in_use, text);
    return;
  }
  sigaction(SIGSEGV, &previous_handler, nullptr);  // into which the repeated access goes
}

}  // namespace

void catch_faults() {
  struct sigaction current {};
  sigaction(SIGSEGV, nullptr, &current);
  if ((current.sa_flags & SA_SIGINFO) != 0 && current.sa_sigaction == on_fault) return;
  previous_handler = current;
  stack_t stack{};
  sigaltstack(nullptr, &stack);
  if ((stack.ss_flags & SS_DISABLE) != 0 || stack.ss_size < size_t(64) << 10) {
    static char own[256 << 10];  // a fiber whose stack is full has no room for the handler
    stack = stack_t{};
    stack.ss_sp = own;
    stack.ss_size = sizeof own;
    sigaltstack(&stack, nullptr);
  }
  struct sigaction action {};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
  sigaction(SIGSEGV, &action, nullptr);
}

}  // namespace minim::emulator
