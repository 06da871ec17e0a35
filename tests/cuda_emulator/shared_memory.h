#pragma once

#include <cstddef>
#include <cstdint>

#include "tests/cuda_emulator/shadow.h"

// Shared memory of the running block.
namespace minim::emulator {

inline constexpr size_t shared_bytes_default = 48
                                               << 10;  // of a block, unless an attribute says more
inline constexpr size_t shared_bytes_most = 227 << 10;

// A variable, or the dynamic part.
struct SharedVariable {
  const void* key = nullptr;
  uintptr_t begin = 0;
  size_t bytes = 0;
  Shadow shadow;
};

// A launch that may use `most` bytes; its blocks begin with the dynamic part alone, all of it NaN.
void begin_shared_launch(size_t dynamic_bytes, size_t most);
void begin_shared_block();
void end_shared_launch();

bool is_shared_address(const void* address);
// The variable that the address lies in; nullptr if none.
SharedVariable* find_shared(const void* address);

}  // namespace minim::emulator
