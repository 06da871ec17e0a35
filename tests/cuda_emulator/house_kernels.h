#pragma once

#include <cstdint>

namespace minim::emulator {

// ++counts[i] for i in [0, n).
void count_elements(int* counts, int64_t n);
// y = x - the sum of its row; sums and largest elements of the rows.   x, y: [rows, dim]
void centre_rows(float* y, float* sums, float* largest, const float* x, int64_t rows, int64_t dim);

}  // namespace minim::emulator
