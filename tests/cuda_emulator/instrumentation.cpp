#include <cstdint>

#include <fmt/format.h>

#include "tests/cuda_emulator/checker.h"

// What g++ and clang++ call in code compiled with -fsanitize=thread and some of
// -fsanitize=undefined: instead of the libraries of these sanitizers, the checks of this emulator,
// which know CUDA's rules. Nothing here may be linked together with those libraries.

namespace {

using minim::emulator::Problem;
namespace checker = minim::emulator::checker;

void read(const void* p, size_t bytes, const void* code) {
  checker::access(p, bytes, false, false, code);
}
void write(const void* p, size_t bytes, const void* code) {
  checker::access(p, bytes, true, false, code);
}

// The first field of what the compiler passes to the handlers of undefined behaviour.
struct Location {
  const char* file;
  uint32_t line, column;
};

void violation(Problem problem, const char* what, const void* data, const void* code) {
  const auto& at = *static_cast<const Location*>(data);
  checker::violation(problem, fmt::format("{}, {}:{}", what, at.file, at.line), code);
}

template <class T>
T* atomic(const volatile T* p, bool writes, const void* code) {
  auto* address = const_cast<T*>(p);
  checker::access(address, sizeof(T), writes, true, code);
  return address;
}

}  // namespace

extern "C" {

void __tsan_init() {}
void __tsan_func_entry(void*) {
  checker::notice_instrumentation();
}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}

void __tsan_read1(void* p) {
  read(p, 1, __builtin_return_address(0));
}
void __tsan_write1(void* p) {
  write(p, 1, __builtin_return_address(0));
}
void __tsan_volatile_read1(void* p) {
  read(p, 1, __builtin_return_address(0));
}
void __tsan_volatile_write1(void* p) {
  write(p, 1, __builtin_return_address(0));
}
void __tsan_read2(void* p) {
  read(p, 2, __builtin_return_address(0));
}
void __tsan_write2(void* p) {
  write(p, 2, __builtin_return_address(0));
}
void __tsan_volatile_read2(void* p) {
  read(p, 2, __builtin_return_address(0));
}
void __tsan_volatile_write2(void* p) {
  write(p, 2, __builtin_return_address(0));
}
void __tsan_read4(void* p) {
  read(p, 4, __builtin_return_address(0));
}
void __tsan_write4(void* p) {
  write(p, 4, __builtin_return_address(0));
}
void __tsan_volatile_read4(void* p) {
  read(p, 4, __builtin_return_address(0));
}
void __tsan_volatile_write4(void* p) {
  write(p, 4, __builtin_return_address(0));
}
void __tsan_read8(void* p) {
  read(p, 8, __builtin_return_address(0));
}
void __tsan_write8(void* p) {
  write(p, 8, __builtin_return_address(0));
}
void __tsan_volatile_read8(void* p) {
  read(p, 8, __builtin_return_address(0));
}
void __tsan_volatile_write8(void* p) {
  write(p, 8, __builtin_return_address(0));
}
void __tsan_read16(void* p) {
  read(p, 16, __builtin_return_address(0));
}
void __tsan_write16(void* p) {
  write(p, 16, __builtin_return_address(0));
}
void __tsan_volatile_read16(void* p) {
  read(p, 16, __builtin_return_address(0));
}
void __tsan_volatile_write16(void* p) {
  write(p, 16, __builtin_return_address(0));
}
void __tsan_unaligned_read2(void* p) {
  read(p, 2, __builtin_return_address(0));
}
void __tsan_unaligned_write2(void* p) {
  write(p, 2, __builtin_return_address(0));
}
void __tsan_unaligned_read4(void* p) {
  read(p, 4, __builtin_return_address(0));
}
void __tsan_unaligned_write4(void* p) {
  write(p, 4, __builtin_return_address(0));
}
void __tsan_unaligned_read8(void* p) {
  read(p, 8, __builtin_return_address(0));
}
void __tsan_unaligned_write8(void* p) {
  write(p, 8, __builtin_return_address(0));
}
void __tsan_unaligned_read16(void* p) {
  read(p, 16, __builtin_return_address(0));
}
void __tsan_unaligned_write16(void* p) {
  write(p, 16, __builtin_return_address(0));
}
void __tsan_read_range(void* p, unsigned long bytes) {
  read(p, bytes, __builtin_return_address(0));
}
void __tsan_write_range(void* p, unsigned long bytes) {
  write(p, bytes, __builtin_return_address(0));
}

unsigned char __tsan_atomic8_load(const volatile unsigned char* p, int) {
  return *atomic(p, false, __builtin_return_address(0));
}
void __tsan_atomic8_store(volatile unsigned char* p, unsigned char value, int) {
  *atomic(p, true, __builtin_return_address(0)) = value;
}
int __tsan_atomic8_compare_exchange_strong(volatile unsigned char* p, unsigned char* expected,
                                           unsigned char value, int, int) {
  return int(__atomic_compare_exchange_n(atomic(p, true, __builtin_return_address(0)), expected,
                                         value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST));
}
int __tsan_atomic8_compare_exchange_weak(volatile unsigned char* p, unsigned char* expected,
                                         unsigned char value, int, int) {
  return int(__atomic_compare_exchange_n(atomic(p, true, __builtin_return_address(0)), expected,
                                         value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST));
}
unsigned char __tsan_atomic8_compare_exchange_val(volatile unsigned char* p, unsigned char expected,
                                                  unsigned char value, int, int) {
  __atomic_compare_exchange_n(atomic(p, true, __builtin_return_address(0)), &expected, value, false,
                              __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
  return expected;
}
unsigned char __tsan_atomic8_exchange(volatile unsigned char* p, unsigned char value, int) {
  return __atomic_exchange_n(atomic(p, true, __builtin_return_address(0)), value, __ATOMIC_SEQ_CST);
}
unsigned char __tsan_atomic8_fetch_add(volatile unsigned char* p, unsigned char value, int) {
  return __atomic_fetch_add(atomic(p, true, __builtin_return_address(0)), value, __ATOMIC_SEQ_CST);
}
unsigned char __tsan_atomic8_fetch_sub(volatile unsigned char* p, unsigned char value, int) {
  return __atomic_fetch_sub(atomic(p, true, __builtin_return_address(0)), value, __ATOMIC_SEQ_CST);
}
unsigned char __tsan_atomic8_fetch_and(volatile unsigned char* p, unsigned char value, int) {
  return __atomic_fetch_and(atomic(p, true, __builtin_return_address(0)), value, __ATOMIC_SEQ_CST);
}
unsigned char __tsan_atomic8_fetch_or(volatile unsigned char* p, unsigned char value, int) {
  return __atomic_fetch_or(atomic(p, true, __builtin_return_address(0)), value, __ATOMIC_SEQ_CST);
}
unsigned char __tsan_atomic8_fetch_xor(volatile unsigned char* p, unsigned char value, int) {
  return __atomic_fetch_xor(atomic(p, true, __builtin_return_address(0)), value, __ATOMIC_SEQ_CST);
}
unsigned short __tsan_atomic16_load(const volatile unsigned short* p, int) {
  return *atomic(p, false, __builtin_return_address(0));
}
void __tsan_atomic16_store(volatile unsigned short* p, unsigned short value, int) {
  *atomic(p, true, __builtin_return_address(0)) = value;
}
int __tsan_atomic16_compare_exchange_strong(volatile unsigned short* p, unsigned short* expected,
                                            unsigned short value, int, int) {
  return int(__atomic_compare_exchange_n(atomic(p, true, __builtin_return_address(0)), expected,
                                         value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST));
}
int __tsan_atomic16_compare_exchange_weak(volatile unsigned short* p, unsigned short* expected,
                                          unsigned short value, int, int) {
  return int(__atomic_compare_exchange_n(atomic(p, true, __builtin_return_address(0)), expected,
                                         value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST));
}
unsigned short __tsan_atomic16_compare_exchange_val(volatile unsigned short* p,
                                                    unsigned short expected, unsigned short value,
                                                    int, int) {
  __atomic_compare_exchange_n(atomic(p, true, __builtin_return_address(0)), &expected, value, false,
                              __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
  return expected;
}
unsigned short __tsan_atomic16_exchange(volatile unsigned short* p, unsigned short value, int) {
  return __atomic_exchange_n(atomic(p, true, __builtin_return_address(0)), value, __ATOMIC_SEQ_CST);
}
unsigned short __tsan_atomic16_fetch_add(volatile unsigned short* p, unsigned short value, int) {
  return __atomic_fetch_add(atomic(p, true, __builtin_return_address(0)), value, __ATOMIC_SEQ_CST);
}
unsigned short __tsan_atomic16_fetch_sub(volatile unsigned short* p, unsigned short value, int) {
  return __atomic_fetch_sub(atomic(p, true, __builtin_return_address(0)), value, __ATOMIC_SEQ_CST);
}
unsigned short __tsan_atomic16_fetch_and(volatile unsigned short* p, unsigned short value, int) {
  return __atomic_fetch_and(atomic(p, true, __builtin_return_address(0)), value, __ATOMIC_SEQ_CST);
}
unsigned short __tsan_atomic16_fetch_or(volatile unsigned short* p, unsigned short value, int) {
  return __atomic_fetch_or(atomic(p, true, __builtin_return_address(0)), value, __ATOMIC_SEQ_CST);
}
unsigned short __tsan_atomic16_fetch_xor(volatile unsigned short* p, unsigned short value, int) {
  return __atomic_fetch_xor(atomic(p, true, __builtin_return_address(0)), value, __ATOMIC_SEQ_CST);
}
unsigned __tsan_atomic32_load(const volatile unsigned* p, int) {
  return *atomic(p, false, __builtin_return_address(0));
}
void __tsan_atomic32_store(volatile unsigned* p, unsigned value, int) {
  *atomic(p, true, __builtin_return_address(0)) = value;
}
int __tsan_atomic32_compare_exchange_strong(volatile unsigned* p, unsigned* expected,
                                            unsigned value, int, int) {
  return int(__atomic_compare_exchange_n(atomic(p, true, __builtin_return_address(0)), expected,
                                         value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST));
}
int __tsan_atomic32_compare_exchange_weak(volatile unsigned* p, unsigned* expected, unsigned value,
                                          int, int) {
  return int(__atomic_compare_exchange_n(atomic(p, true, __builtin_return_address(0)), expected,
                                         value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST));
}
unsigned __tsan_atomic32_compare_exchange_val(volatile unsigned* p, unsigned expected,
                                              unsigned value, int, int) {
  __atomic_compare_exchange_n(atomic(p, true, __builtin_return_address(0)), &expected, value, false,
                              __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
  return expected;
}
unsigned __tsan_atomic32_exchange(volatile unsigned* p, unsigned value, int) {
  return __atomic_exchange_n(atomic(p, true, __builtin_return_address(0)), value, __ATOMIC_SEQ_CST);
}
unsigned __tsan_atomic32_fetch_add(volatile unsigned* p, unsigned value, int) {
  return __atomic_fetch_add(atomic(p, true, __builtin_return_address(0)), value, __ATOMIC_SEQ_CST);
}
unsigned __tsan_atomic32_fetch_sub(volatile unsigned* p, unsigned value, int) {
  return __atomic_fetch_sub(atomic(p, true, __builtin_return_address(0)), value, __ATOMIC_SEQ_CST);
}
unsigned __tsan_atomic32_fetch_and(volatile unsigned* p, unsigned value, int) {
  return __atomic_fetch_and(atomic(p, true, __builtin_return_address(0)), value, __ATOMIC_SEQ_CST);
}
unsigned __tsan_atomic32_fetch_or(volatile unsigned* p, unsigned value, int) {
  return __atomic_fetch_or(atomic(p, true, __builtin_return_address(0)), value, __ATOMIC_SEQ_CST);
}
unsigned __tsan_atomic32_fetch_xor(volatile unsigned* p, unsigned value, int) {
  return __atomic_fetch_xor(atomic(p, true, __builtin_return_address(0)), value, __ATOMIC_SEQ_CST);
}
unsigned long __tsan_atomic64_load(const volatile unsigned long* p, int) {
  return *atomic(p, false, __builtin_return_address(0));
}
void __tsan_atomic64_store(volatile unsigned long* p, unsigned long value, int) {
  *atomic(p, true, __builtin_return_address(0)) = value;
}
int __tsan_atomic64_compare_exchange_strong(volatile unsigned long* p, unsigned long* expected,
                                            unsigned long value, int, int) {
  return int(__atomic_compare_exchange_n(atomic(p, true, __builtin_return_address(0)), expected,
                                         value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST));
}
int __tsan_atomic64_compare_exchange_weak(volatile unsigned long* p, unsigned long* expected,
                                          unsigned long value, int, int) {
  return int(__atomic_compare_exchange_n(atomic(p, true, __builtin_return_address(0)), expected,
                                         value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST));
}
unsigned long __tsan_atomic64_compare_exchange_val(volatile unsigned long* p,
                                                   unsigned long expected, unsigned long value, int,
                                                   int) {
  __atomic_compare_exchange_n(atomic(p, true, __builtin_return_address(0)), &expected, value, false,
                              __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
  return expected;
}
unsigned long __tsan_atomic64_exchange(volatile unsigned long* p, unsigned long value, int) {
  return __atomic_exchange_n(atomic(p, true, __builtin_return_address(0)), value, __ATOMIC_SEQ_CST);
}
unsigned long __tsan_atomic64_fetch_add(volatile unsigned long* p, unsigned long value, int) {
  return __atomic_fetch_add(atomic(p, true, __builtin_return_address(0)), value, __ATOMIC_SEQ_CST);
}
unsigned long __tsan_atomic64_fetch_sub(volatile unsigned long* p, unsigned long value, int) {
  return __atomic_fetch_sub(atomic(p, true, __builtin_return_address(0)), value, __ATOMIC_SEQ_CST);
}
unsigned long __tsan_atomic64_fetch_and(volatile unsigned long* p, unsigned long value, int) {
  return __atomic_fetch_and(atomic(p, true, __builtin_return_address(0)), value, __ATOMIC_SEQ_CST);
}
unsigned long __tsan_atomic64_fetch_or(volatile unsigned long* p, unsigned long value, int) {
  return __atomic_fetch_or(atomic(p, true, __builtin_return_address(0)), value, __ATOMIC_SEQ_CST);
}
unsigned long __tsan_atomic64_fetch_xor(volatile unsigned long* p, unsigned long value, int) {
  return __atomic_fetch_xor(atomic(p, true, __builtin_return_address(0)), value, __ATOMIC_SEQ_CST);
}
void __tsan_atomic_thread_fence(int) {}
void __tsan_atomic_signal_fence(int) {}

// Alignment: the second field is the type, then the logarithm of its alignment and what was done.
void __ubsan_handle_type_mismatch_v1(void* data, const void* p) {
  violation(Problem::misaligned,
            fmt::format("access at {}, which the type's alignment does not divide", p).c_str(),
            data, __builtin_return_address(0));
}
void __ubsan_handle_out_of_bounds(void* data, unsigned long) {
  violation(Problem::out_of_bounds, "index outside of an array", data, __builtin_return_address(0));
}
void __ubsan_handle_add_overflow(void* data, unsigned long, unsigned long) {
  violation(Problem::arithmetic, "overflow of a sum", data, __builtin_return_address(0));
}
void __ubsan_handle_sub_overflow(void* data, unsigned long, unsigned long) {
  violation(Problem::arithmetic, "overflow of a difference", data, __builtin_return_address(0));
}
void __ubsan_handle_mul_overflow(void* data, unsigned long, unsigned long) {
  violation(Problem::arithmetic, "overflow of a product", data, __builtin_return_address(0));
}
void __ubsan_handle_negate_overflow(void* data, unsigned long) {
  violation(Problem::arithmetic, "overflow of a negation", data, __builtin_return_address(0));
}
void __ubsan_handle_divrem_overflow(void* data, unsigned long, unsigned long) {
  violation(Problem::arithmetic, "division by zero, or its overflow", data,
            __builtin_return_address(0));
}
void __ubsan_handle_shift_out_of_bounds(void* data, unsigned long, unsigned long) {
  violation(Problem::arithmetic, "shift by too much", data, __builtin_return_address(0));
}
}
