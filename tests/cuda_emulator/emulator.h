#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

// Runs CUDA programs on the CPU and says what is wrong with them: kernels and host code are
// compiled as C++ against the toolkit's own headers, and this library stands in for its runtime.
// README.md tells how; here is all that a test program needs to call.
namespace minim::emulator {

// In which order the threads of a block, and the blocks of a grid, are run.
enum class Order { forward, reverse, random };

// What the emulated machine is and how it runs. The environment variable CUDA_EMULATOR sets the
// first five at the start, for instance CUDA_EMULATOR=order=random:7,deferred,nochecks.
struct Options {
  Order order = Order::forward;
  unsigned seed = 1;      // of Order::random
  bool deferred = false;  // work on streams is run only when somebody waits for it
  bool checks = true;     // every access of instrumented kernels is checked
  bool protect = true;    // host code that reads or writes device memory is caught

  int devices = 1;                        // 0: there is none
  int driver_version = 13000;             // below the toolkit's: cudaErrorInsufficientDriver
  int capability = 90;                    // of the device, times 10
  size_t device_bytes = size_t(8) << 30;  // memory of the device
};
Options& options();
// Options from the words that CUDA_EMULATOR takes; throws Error for others.
Options parse_options(std::string_view words);

// Everything that can be found. Those of the second group are what a real device reports as well,
// and make all later calls fail as on one.
enum class Problem : uint8_t {
  uninitialised_read,  // of device or shared memory, by a kernel or a copy to the host
  race,                // two threads of a block, without a barrier between
  block_race,          // two blocks of one launch
  stream_race,         // two streams, without an event between
  divergent_barrier,   // __syncthreads that not all threads of the block reach, or different ones
  warp_mask,           // a warp operation whose mask is wrong, or that its lanes do not all run
  inactive_lane,       // a shuffle from a lane that takes no part
  host_access,         // host code that reads or writes device memory
  pinned_in_use,       // host code that uses a pinned buffer before a copy is waited for
  overrun,             // bytes behind an allocation that somebody wrote (seen when it is freed)
  invalid_free,        // freed twice, or never allocated
  invalid_copy,        // a copy or memset outside an allocation, or in the wrong direction
  arithmetic,          // signed overflow, a shift too far, a division by zero

  out_of_bounds,  // an access outside of allocations and shared variables
  use_after_free,
  host_pointer,  // a kernel that uses memory of the host
  misaligned,
  trap,
  stack_overflow,
};
std::string_view name_of(Problem problem);

struct Finding {
  Problem problem;
  std::string text;  // what, where in the source, by which thread of which launch
};

// While one lives, what is found is kept here, the launch in question is given up, and the program
// goes on; else a finding is printed and ends the program.
class Collect {
 public:
  Collect();
  ~Collect();
  Collect(const Collect&) = delete;
  Collect& operator=(const Collect&) = delete;

  std::vector<Finding> findings;

 private:
  Collect* outer_;
};

// Why the last call of this thread that failed did, in more words than its code.
std::string explanation();

// So many of the calls to come that make executable graphs fail, as for want of memory.
void fail_graphs(int calls);

// Device and pinned memory, streams, events and graphs that nobody freed, a line each.
std::vector<std::string> leaks();

struct Statistics {
  uint64_t launches = 0, blocks = 0, threads = 0, switches = 0, checked_accesses = 0;
  // Synchronising calls and allocations, which a steady training step has none of.
  uint64_t synchronisations = 0, allocations = 0;
};
// Counted since the start or the last reset().
Statistics statistics();

// Forgets all memory, streams, errors and findings: a device as new. Nothing from before may be
// used afterwards.
void reset();

}  // namespace minim::emulator
