#include "core/parallel.h"

#include <omp.h>

#include "core/error.h"

namespace minim {

int thread_count() {
  return omp_get_max_threads();
}

void set_thread_count(int threads) {
  check(threads >= 1, "set_thread_count: needs at least 1 thread, got {}", threads);
  omp_set_num_threads(threads);
}

int thread_index() {
  return omp_get_thread_num();
}

}  // namespace minim
