#include "tests/cuda_emulator/house_kernels.h"

#include "core/cuda/launchers.h"
#include "core/portable.h"

namespace minim::emulator {

struct CountKernel {
  int* counts;
  HD void operator()(int64_t i) const { ++counts[i]; }
};

struct CentreKernel {
  float *y, *sums, *largest;
  const float* x;
  int64_t dim;

  template <class Group>
  HD void operator()(const Group& g, int64_t row) const {
    const float* in = x + row * dim;
    float* out = y + row * dim;
    // In two, of which the second uses what the first has left.
    const int64_t half = dim / 2;
    const float sum = g.sum(half, [&](int64_t i) { return in[i]; }) +
                      g.sum(dim - half, [&](int64_t i) { return in[half + i]; });
    const float most = g.max(dim, [&](int64_t i) { return in[i]; });
    g.each(dim, [&](int64_t i) { out[i] = in[i] - sum; });
    if (g.leader()) {
      sums[row] = sum;
      largest[row] = most;
    }
  }
};

void count_elements(int* counts, int64_t n) {
  cuda::launch_elements(n, CountKernel{counts}, nullptr);
}

void centre_rows(float* y, float* sums, float* largest, const float* x, int64_t rows, int64_t dim) {
  cuda::launch_rows(rows, dim, CentreKernel{y, sums, largest, x, dim}, nullptr);
}

}  // namespace minim::emulator
