#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "tests/cuda_emulator/clock.h"

// Host memory that copies run from and to while the host goes on. As long as a copy into a buffer
// has not been waited for, the host's reads and writes of it are caught; of the source of a copy,
// its writes.
namespace minim::emulator {

// A use of a pinned buffer by work on a stream.
struct PinnedUse {
  const void* address = nullptr;
  bool written = false;  // by the work
};

void* allocate_pinned(size_t bytes);
// False if it is no pinned buffer.
bool free_pinned(void* address);
bool is_pinned(const void* address);
// Bytes from the address to the end of its buffer; 0 outside of buffers.
size_t pinned_room(const void* address);
// From now until a host clock covers the ticket, the host may not use the buffer otherwise.
void start_pinned_use(const PinnedUse& use, const Ticket& ticket);
// Lets the host use the buffers whose work it has waited for.
void finish_pinned_uses(const Clock& host);
// Lets a copy of the emulator itself use the buffer.
void open_pinned(const void* address);
void close_pinned(const void* address);
// If the address lies in a buffer in use: opens it and returns what to say about it, else "".
std::string describe_pinned_fault(const void* address);
std::vector<std::string> live_pinned();
void reset_pinned();

}  // namespace minim::emulator
