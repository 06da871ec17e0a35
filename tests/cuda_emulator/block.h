#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tests/cuda_emulator/device.h"
#include "tests/cuda_emulator/findings.h"

// Runs grids: blocks one after the other, the threads of a block on fibers.
namespace minim::emulator {

// Runs all threads of a launch on this host thread; false if it was given up.
bool run_grid(const LaunchRequest& request);

// The kernel thread that runs now.
struct Execution {
  const LaunchRequest* request = nullptr;
  unsigned thread = 0;        // of the block
  uint32_t first_thread = 0;  // the block's first, counted through the grid
};
// On a host thread that runs a kernel just now; else nullptr.
extern constinit thread_local const Execution* executing;

// Gives up the launch that runs, after a problem in one of its threads. Nothing on its stack is
// destroyed: what the caller made for the text must be part of it.
[[noreturn]] void stop_kernel(Problem problem, std::string&& text, std::vector<Place> places = {});

// Does the address lie on the running thread's stack, on another thread's, below one?
bool on_own_stack(const void* address);
bool on_other_stack(const void* address);
bool on_stack_guard(const void* address);

// The last part of the file's name.
std::string_view file_of(const Source& where);
// "kernel <<<(2, 1, 1), (32, 1, 1), 0>>>".
std::string describe(const LaunchRequest& request);

}  // namespace minim::emulator
