#pragma once

namespace minim::emulator {

// Makes this library the first to hear of memory that must not be touched: device memory by the
// host, pinned memory in use, the end of a fiber's stack. To be called before memory is protected,
// each time, since others (test frameworks, sanitizers) set handlers as well.
void catch_faults();

}  // namespace minim::emulator
