#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "tests/cuda_emulator/block.h"
#include "tests/cuda_emulator/device_memory.h"

// Checks of every single access to device and shared memory: bounds, life time, initialisation and
// races, by CUDA's rules of what is ordered: __syncthreads orders a block, __syncwarp the lanes it
// names, the end of a launch all of it, streams and events launches; the blocks of one launch are
// never ordered, shuffles order nothing, and atomics do not race with atomics.
namespace minim::emulator::checker {

// Are the checks on? They go off for good (until reset) when a kernel is run that was compiled
// without instrumentation, since its writes go unseen.
bool enabled();
void reset();

// A piece of work begins on a stream; its accesses are by this ticket, after this clock.
void begin_work(const Ticket& ticket, const Clock& after);

// The steps of a launch, as block.cpp goes through them.
void begin_launch(const LaunchRequest& request, unsigned threads);
void end_launch();
void begin_block(uint64_t first_thread);
void block_synced();
void warp_synced(unsigned warp, unsigned lanes);

// A function of a kernel that was compiled with instrumentation has begun.
void notice_instrumentation();
// One access by the running kernel thread; outside of kernels it is ignored.
void access(const void* address, size_t bytes, bool write, bool atomic, const void* code);
// A problem that the compiler's instrumentation noticed: as access(), ignored outside of kernels.
void violation(Problem problem, const std::string& text, const void* code);
uint64_t accesses();

// Notes that the running work uses an allocation; returns what is wrong with that, or "".
std::string note_use(Allocation& allocation);
// What copies and memsets do, checked likewise and reported with `what` in front. For a read by the
// host every byte must have been written.
void write_range(Allocation& a, size_t offset, size_t bytes, const std::string& what);
void read_range(Allocation& a, size_t offset, size_t bytes, const std::string& what);
void copy_range(Allocation& to, size_t to_offset, Allocation& from, size_t from_offset,
                size_t bytes, const std::string& what);

}  // namespace minim::emulator::checker
