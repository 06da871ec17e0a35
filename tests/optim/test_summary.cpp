#include <cmath>

#include <doctest/doctest.h>

#include "optim/summary.h"
#include "tests/core/temporary_folder.h"

using namespace minim;
using namespace minim::optim;
using namespace minim::test;

TEST_CASE("summary: least, mean, largest, rms and zeros of what is finite") {
  const Summary s = summarize(Tensor::from({-2.0f, 0.0f, 4.0f, NAN, 2.0f, -INFINITY}, {2, 3}));
  CHECK(s.elements == 6);
  CHECK(s.not_finite == 2);
  CHECK(s.zeros == 1);
  CHECK(s.min == -2);
  CHECK(s.mean == 1);  // 4 / 4
  CHECK(s.max == 4);
  CHECK(s.rms == doctest::Approx(std::sqrt(6.0)));  // (4 + 0 + 16 + 4) / 4
}

TEST_CASE("summary: of nothing it is all zeros") {
  for (const Tensor& x : {Tensor::zeros({0, 3}), Tensor::full({2}, NAN)}) {
    const Summary s = summarize(x);
    CHECK(s.min == 0);
    CHECK(s.rms == 0);
    CHECK(histogram(x, 4).counts == std::vector<int64_t>{0, 0, 0, 0});
  }
}

TEST_CASE("histogram: equal bins where there are negative numbers; the largest is in the last") {
  const Histogram h =
      histogram(Tensor::from({-1.0, -0.9, 0.0, 0.1, 0.99, 1.0, double(NAN)}, {7}), 4);
  CHECK(!h.logarithmic);
  CHECK(h.low == -1);
  CHECK(h.high == 1);
  CHECK(h.counts == std::vector<int64_t>{2, 0, 2, 2});
}

TEST_CASE("histogram: powers of ten where there are none, and zeros in no bin") {
  const Histogram h = histogram(Tensor::from({1e-8, 1e-7, 3e-6, 1e-5, 0.0, 0.0}, {6}), 3);
  CHECK(h.logarithmic);
  CHECK(h.low == 1e-8);
  CHECK(h.high == 1e-5);
  CHECK(h.counts == std::vector<int64_t>{1, 1, 2});
  CHECK(histogram(Tensor::full({5}, 2.0), 3).counts == std::vector<int64_t>{5, 0, 0});
  CHECK(error_of([] { histogram(Tensor::zeros({1}), 0); }) ==
        "histogram: 0 bins, must be at least 1");
}
