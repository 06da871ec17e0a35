#pragma once

#include <cstdint>

namespace minim {

// Threads that loops over tensors use, at first as many as the machine (or OMP_NUM_THREADS) gives.
// No result depends on their number.
int thread_count();
void set_thread_count(int threads);
// Inside a parallel loop, which of the thread_count() threads this is; else 0.
int thread_index();

// Elements that one thread takes at a time. Less is not worth waking another thread for.
inline constexpr int64_t element_grain = 32768;

// Splits [0, n) into chunks of `grain` and calls body(begin, end) for each, on several threads
// where there are more than two chunks. The chunks are the same whatever the number of threads. The
// body must not throw.
template <class Body>
void parallel_chunks(int64_t n, int64_t grain, const Body& body) {
  const int64_t chunks = (n + grain - 1) / grain;
#pragma omp parallel for schedule(static) if (chunks > 2)
  for (int64_t c = 0; c < chunks; ++c) {
    const int64_t begin = c * grain;
    body(begin, begin + grain < n ? begin + grain : n);
  }
}

// Calls body(i) for each i in [0, n); tasks of uneven size are handed out one by one.
template <class Body>
void parallel_tasks(int64_t n, const Body& body) {
#pragma omp parallel for schedule(dynamic) if (n > 1)
  for (int64_t i = 0; i < n; ++i)
    body(i);
}

}  // namespace minim
