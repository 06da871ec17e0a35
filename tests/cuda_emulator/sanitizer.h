#pragma once

#include <cstddef>

#if defined(__SANITIZE_ADDRESS__)
#define MINIM_EMULATOR_ASAN
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define MINIM_EMULATOR_ASAN
#endif
#endif

#if defined(MINIM_EMULATOR_ASAN)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

// What AddressSanitizer must be told, nothing in a build without it.
namespace minim::emulator::sanitizer {

#if defined(MINIM_EMULATOR_ASAN)

inline constexpr bool active = true;
inline void poison(const void* begin, size_t bytes) {
  __asan_poison_memory_region(begin, bytes);
}
inline void unpoison(const void* begin, size_t bytes) {
  __asan_unpoison_memory_region(begin, bytes);
}
inline void start_switch(void** fake_stack, const void* stack, size_t bytes) {
  __sanitizer_start_switch_fiber(fake_stack, stack, bytes);
}
inline void finish_switch(void* fake_stack) {
  __sanitizer_finish_switch_fiber(fake_stack, nullptr, nullptr);
}

#else

inline constexpr bool active = false;
inline void poison(const void*, size_t) {}
inline void unpoison(const void*, size_t) {}
inline void start_switch(void**, const void*, size_t) {}
inline void finish_switch(void*) {}

#endif

}  // namespace minim::emulator::sanitizer
