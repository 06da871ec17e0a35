#pragma once

#include <cstdint>
#include <vector>

#include "core/tensor.h"

namespace minim::optim {

// What a tensor's numbers are like, in f64. Those that are not finite are counted and else left
// out.
struct Summary {
  int64_t elements = 0, zeros = 0, not_finite = 0;
  double min = 0, mean = 0, max = 0, rms = 0;
};
Summary summarize(const Tensor& x);

// How many elements lie in each of equally wide bins from the smallest to the largest. Where no
// element is negative the bins are equally wide in powers of ten, and zeros are in none.
struct Histogram {
  bool logarithmic = false;
  double low = 0, high = 0;
  std::vector<int64_t> counts;
};
Histogram histogram(const Tensor& x, int bins);

}  // namespace minim::optim
