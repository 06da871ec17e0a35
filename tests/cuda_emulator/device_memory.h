#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tests/cuda_emulator/clock.h"
#include "tests/cuda_emulator/shadow.h"

// Memory of the device: a range of addresses that is never used twice, so that a pointer says for
// ever whose it was, and that host code cannot touch.
namespace minim::emulator {

// A piece of device memory, alive or freed.
struct Allocation {
  uintptr_t begin = 0;
  size_t bytes = 0;
  bool live = true;
  bool doomed = false;       // work on a stream will free it
  uint64_t serial = 0;       // the how manieth allocation of the program
  Ticket created;            // what allocated it
  std::vector<Ticket> uses;  // by which work, but for work that comes before other work here
  uint64_t noted = 0;        // the last work whose use was noted
  Shadow shadow;

  uintptr_t end() const { return begin + bytes; }
  // "allocation 3 (f00, 400 bytes)".
  std::string describe() const;
};

// Takes memory; nullptr when options().device_bytes are in use. Contents are 0xff: NaN as floats.
Allocation* allocate_device(size_t bytes, const Ticket& created);
// Ends an allocation's life, after looking for bytes written behind it.
void free_device(Allocation& allocation);
// The live or dead allocation that an address lies in or was in, or one past the end of which it
// is; nullptr if none.
Allocation* find_allocation(const void* address);
// "12 bytes behind allocation 3 (..)" for an address in none.
std::string describe_place(const void* address);
bool is_device_address(const void* address);
size_t device_bytes_in_use();
// The live allocations, a line each.
std::vector<std::string> live_allocations();
void reset_device_memory();
// Lets the host touch the memory at an address, until the next piece of work ends.
void uncover_device_memory(const void* address);

// While one lives, this host thread may touch device memory: kernels and copies run in one.
class DeviceOpen {
 public:
  DeviceOpen();
  ~DeviceOpen();
  DeviceOpen(const DeviceOpen&) = delete;
  DeviceOpen& operator=(const DeviceOpen&) = delete;
};

}  // namespace minim::emulator
