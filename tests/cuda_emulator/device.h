#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include <cuda_fp16.h>
#include <cuda_runtime_api.h>

// What kernels see and nvcc builds in: where a thread is, barriers, warp operations, shared memory,
// atomics; and how host code launches them. Names are CUDA's.

// A thread's place does not change while it runs, so they are constants to it: which also keeps
// -fsanitize=thread from checking every use of them.
extern const uint3 threadIdx, blockIdx;
extern const dim3 blockDim, gridDim;
inline constexpr int warpSize = 32;

namespace minim::emulator {

// A line of a kernel. (clang 14 has no std::source_location.)
struct Source {
  const char* file = "";
  int line = 0;

  static constexpr Source current(const char* file = __builtin_FILE(),
                                  int line = __builtin_LINE()) {
    return {file, line};
  }
};

enum class BarrierKind : uint8_t { plain, count, all, any };
enum class WarpKind : uint8_t { barrier, index, up, down, exclusive_or, ballot, match, reduce };

// Waits for all threads of the block; returns what the kind makes of their predicates.
int block_barrier(BarrierKind kind, int predicate, Source where);
// Waits for the lanes of the mask; returns what the operation makes of their values.
uint64_t warp_operation(WarpKind kind, unsigned mask, uint64_t value, unsigned argument, int width,
                        Source where);
// Lanes of this thread's warp that have not returned.
unsigned active_lanes();
[[noreturn]] void trap(Source where);

// Shared memory of the running block: a variable is known by the address of its key.
void* shared_storage(const void* key, size_t bytes, size_t alignment);
void* dynamic_shared_storage();
// Another number for each block.
uint64_t block_serial();

// A launch as the runtime gets it.
struct LaunchRequest {
  const void* kernel = nullptr;
  dim3 grid, block;
  size_t shared = 0;
  cudaStream_t stream = nullptr;
  std::shared_ptr<const void> arguments;
  size_t argument_bytes = 0;
  void (*body)(const void* arguments) = nullptr;           // runs one thread
  std::vector<std::pair<unsigned, const void*>> pointers;  // among the arguments, by index
};
cudaError_t launch(LaunchRequest request);

// g++ does without instrumentation for the one attribute, clang++ for the other.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wattributes"

// Arguments of a kernel, copied when it is launched. (std::tuple's functions would be instrumented,
// and look as if the kernel were.)
template <size_t I, class T>
struct Argument {
  T value;
};
template <class Indices, class... P>
struct ArgumentsOf;
template <size_t... I, class... P>
struct ArgumentsOf<std::index_sequence<I...>, P...> : Argument<I, P>... {
  void (*kernel)(P...) = nullptr;

  explicit ArgumentsOf(void (*k)(P...), P... values) : Argument<I, P>{values}..., kernel(k) {}

  [[clang::disable_sanitizer_instrumentation]] __attribute__((no_sanitize("thread"))) static void
  run(const void* p) {
    const auto* self = static_cast<const ArgumentsOf*>(p);
    self->kernel(static_cast<const Argument<I, P>*>(self)->value...);
  }
  // The pointers among them, by index.
  std::vector<std::pair<unsigned, const void*>> pointers() const {
    std::vector<std::pair<unsigned, const void*>> all;
    const auto note = [&all](unsigned index, const auto& value) {
      if constexpr (std::is_pointer_v<std::decay_t<decltype(value)>>)
        all.emplace_back(index, value);
    };
    (note(unsigned(I), static_cast<const Argument<I, P>*>(this)->value), ...);
    return all;
  }
};

template <class... P>
cudaError_t launch_kernel(void (*kernel)(P...), dim3 grid, dim3 block, size_t shared,
                          cudaStream_t stream, std::type_identity_t<P>... arguments) {
  static_assert((std::is_trivially_copyable_v<P> && ...),
                "arguments of a kernel are copied byte for byte");
  using All = ArgumentsOf<std::index_sequence_for<P...>, P...>;
  const auto all = std::make_shared<const All>(kernel, arguments...);
  LaunchRequest request;
  request.kernel = reinterpret_cast<const void*>(kernel);
  request.grid = grid;
  request.block = block;
  request.shared = shared;
  request.stream = stream;
  request.pointers = all->pointers();
  request.arguments = all;
  request.argument_bytes = sizeof...(P) > 0 ? sizeof(All) : 0;
  request.body = All::run;
  return launch(std::move(request));
}

// The variable that SHARED declares; the lambda of each place is a type of its own, and so a key.
template <class T, class Place>
[[clang::disable_sanitizer_instrumentation]] __attribute__((no_sanitize("thread"))) T&
shared_variable(Place) {
  static constexpr char key = 0;
  static T* address = nullptr;
  static uint64_t serial = 0;
  if (serial != block_serial()) {
    address = static_cast<T*>(shared_storage(&key, sizeof(T), alignof(T)));
    serial = block_serial();
  }
  return *address;
}
#pragma GCC diagnostic pop

template <class T>
T shuffle(WarpKind kind, unsigned mask, T value, unsigned argument, int width, Source where) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= 8);
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  bits = warp_operation(kind, mask, bits, argument, width, where);
  std::memcpy(static_cast<void*>(&value), &bits, sizeof(T));
  return value;
}

enum class Reduction : uint8_t { sum, smallest, largest, bits_and, bits_or, bits_xor };

template <class T>
T reduce(Reduction how, unsigned mask, T value, Source where) {
  static_assert(std::is_same_v<T, int> || std::is_same_v<T, unsigned>);
  const unsigned is_signed = std::is_signed_v<T> ? 8u : 0u;
  return T(warp_operation(WarpKind::reduce, mask, unsigned(value), unsigned(how) | is_signed, 32,
                          where));
}

// An integer with the size of T.
template <class T>
using Bits = std::conditional_t<sizeof(T) == 8, unsigned long long,
                                std::conditional_t<sizeof(T) == 4, unsigned, unsigned short>>;

// Applies f to what p points at in one piece, as a device does; returns what was there.
template <class T, class F>
T atomic_update(T* p, const F& f) {
  static_assert(sizeof(T) == sizeof(Bits<T>));
  auto* bits = reinterpret_cast<Bits<T>*>(p);
  Bits<T> expected = __atomic_load_n(bits, __ATOMIC_RELAXED);
  for (;;) {
    T before;
    std::memcpy(static_cast<void*>(&before), &expected, sizeof(T));
    const T after = f(before);
    Bits<T> desired;
    std::memcpy(&desired, static_cast<const void*>(&after), sizeof(T));
    if (__atomic_compare_exchange_n(bits, &expected, desired, false, __ATOMIC_RELAXED,
                                    __ATOMIC_RELAXED))
      return before;
  }
}
template <class T>
using Same = std::type_identity_t<T>;

}  // namespace minim::emulator

// Barriers of the block.

inline void __syncthreads(minim::emulator::Source where = minim::emulator::Source::current()) {
  minim::emulator::block_barrier(minim::emulator::BarrierKind::plain, 0, where);
}
inline int __syncthreads_count(int predicate,
                               minim::emulator::Source where = minim::emulator::Source::current()) {
  return minim::emulator::block_barrier(minim::emulator::BarrierKind::count, predicate, where);
}
inline int __syncthreads_and(int predicate,
                             minim::emulator::Source where = minim::emulator::Source::current()) {
  return minim::emulator::block_barrier(minim::emulator::BarrierKind::all, predicate, where);
}
inline int __syncthreads_or(int predicate,
                            minim::emulator::Source where = minim::emulator::Source::current()) {
  return minim::emulator::block_barrier(minim::emulator::BarrierKind::any, predicate, where);
}

// Operations of the warp.

inline void __syncwarp(unsigned mask = 0xffffffffu,
                       minim::emulator::Source where = minim::emulator::Source::current()) {
  minim::emulator::warp_operation(minim::emulator::WarpKind::barrier, mask, 0, 0, 32, where);
}
template <class T>
T __shfl_sync(unsigned mask, T value, int lane, int width = 32,
              minim::emulator::Source where = minim::emulator::Source::current()) {
  return minim::emulator::shuffle(minim::emulator::WarpKind::index, mask, value, unsigned(lane),
                                  width, where);
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32,
                 minim::emulator::Source where = minim::emulator::Source::current()) {
  return minim::emulator::shuffle(minim::emulator::WarpKind::up, mask, value, delta, width, where);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32,
                   minim::emulator::Source where = minim::emulator::Source::current()) {
  return minim::emulator::shuffle(minim::emulator::WarpKind::down, mask, value, delta, width,
                                  where);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = 32,
                  minim::emulator::Source where = minim::emulator::Source::current()) {
  return minim::emulator::shuffle(minim::emulator::WarpKind::exclusive_or, mask, value,
                                  unsigned(lanes), width, where);
}
inline unsigned __ballot_sync(unsigned mask, int predicate,
                              minim::emulator::Source where = minim::emulator::Source::current()) {
  return unsigned(minim::emulator::warp_operation(minim::emulator::WarpKind::ballot, mask,
                                                  predicate != 0, 0, 32, where));
}
inline int __any_sync(unsigned mask, int predicate,
                      minim::emulator::Source where = minim::emulator::Source::current()) {
  return __ballot_sync(mask, predicate, where) != 0;
}
inline int __all_sync(unsigned mask, int predicate,
                      minim::emulator::Source where = minim::emulator::Source::current()) {
  return __ballot_sync(mask, !predicate, where) == 0;
}
template <class T>
unsigned __match_any_sync(unsigned mask, T value,
                          minim::emulator::Source where = minim::emulator::Source::current()) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8);
  return unsigned(minim::emulator::shuffle(minim::emulator::WarpKind::match, mask,
                                           uint64_t(std::bit_cast<minim::emulator::Bits<T>>(value)),
                                           0, 32, where));
}
template <class T>
T __reduce_add_sync(unsigned mask, T value,
                    minim::emulator::Source where = minim::emulator::Source::current()) {
  return minim::emulator::reduce(minim::emulator::Reduction::sum, mask, value, where);
}
template <class T>
T __reduce_min_sync(unsigned mask, T value,
                    minim::emulator::Source where = minim::emulator::Source::current()) {
  return minim::emulator::reduce(minim::emulator::Reduction::smallest, mask, value, where);
}
template <class T>
T __reduce_max_sync(unsigned mask, T value,
                    minim::emulator::Source where = minim::emulator::Source::current()) {
  return minim::emulator::reduce(minim::emulator::Reduction::largest, mask, value, where);
}
inline unsigned __reduce_and_sync(
    unsigned mask, unsigned value,
    minim::emulator::Source where = minim::emulator::Source::current()) {
  return minim::emulator::reduce(minim::emulator::Reduction::bits_and, mask, value, where);
}
inline unsigned __reduce_or_sync(
    unsigned mask, unsigned value,
    minim::emulator::Source where = minim::emulator::Source::current()) {
  return minim::emulator::reduce(minim::emulator::Reduction::bits_or, mask, value, where);
}
inline unsigned __reduce_xor_sync(
    unsigned mask, unsigned value,
    minim::emulator::Source where = minim::emulator::Source::current()) {
  return minim::emulator::reduce(minim::emulator::Reduction::bits_xor, mask, value, where);
}
inline unsigned __activemask() {
  return minim::emulator::active_lanes();
}
[[noreturn]] inline void __trap(
    minim::emulator::Source where = minim::emulator::Source::current()) {
  minim::emulator::trap(where);
}
// Threads are run one at a time, so that memory is always in order.
inline void __threadfence() {}
inline void __threadfence_block() {}
inline void __threadfence_system() {}

// Atomics.

template <class T>
T atomicAdd(T* p, minim::emulator::Same<T> v) {
  return minim::emulator::atomic_update(p, [v](T old) { return T(old + v); });
}
template <class T>
T atomicSub(T* p, minim::emulator::Same<T> v) {
  return minim::emulator::atomic_update(p, [v](T old) { return T(old - v); });
}
template <class T>
T atomicMax(T* p, minim::emulator::Same<T> v) {
  return minim::emulator::atomic_update(p, [v](T old) { return old > v ? old : v; });
}
template <class T>
T atomicMin(T* p, minim::emulator::Same<T> v) {
  return minim::emulator::atomic_update(p, [v](T old) { return old < v ? old : v; });
}
template <class T>
T atomicExch(T* p, minim::emulator::Same<T> v) {
  return minim::emulator::atomic_update(p, [v](T) { return v; });
}
template <class T>
T atomicAnd(T* p, minim::emulator::Same<T> v) {
  return minim::emulator::atomic_update(p, [v](T old) { return T(old & v); });
}
template <class T>
T atomicOr(T* p, minim::emulator::Same<T> v) {
  return minim::emulator::atomic_update(p, [v](T old) { return T(old | v); });
}
template <class T>
T atomicXor(T* p, minim::emulator::Same<T> v) {
  return minim::emulator::atomic_update(p, [v](T old) { return T(old ^ v); });
}
template <class T>
T atomicCAS(T* p, minim::emulator::Same<T> expected, minim::emulator::Same<T> v) {
  return minim::emulator::atomic_update(p, [=](T old) { return old == expected ? v : old; });
}
inline unsigned atomicInc(unsigned* p, unsigned last) {
  return minim::emulator::atomic_update(p,
                                        [last](unsigned old) { return old >= last ? 0 : old + 1; });
}
