#include <cmath>
#include <vector>

#include <doctest/doctest.h>

#include "train/sparkline.h"

using namespace minim;

TEST_CASE("a sparkline rises from the lowest to the highest block") {
  CHECK(train::sparkline(std::vector<double>{0, 1, 2, 3, 4, 5, 6, 7}) == "▁▂▃▄▅▆▇█");
  CHECK(train::sparkline(std::vector<double>{-1, 1, -1}) == "▁█▁");
  CHECK(train::sparkline(std::vector<double>{5, 5}) == "▄▄");
  CHECK(train::sparkline(std::vector<double>{0, NAN, 1, INFINITY}) == "▁×█×");
  CHECK(train::sparkline(std::vector<double>{}).empty());
}

TEST_CASE("more values than columns are averaged") {
  CHECK(train::sparkline(std::vector<double>{0, 0, 8, 6, 1, -1}, 3) == "▁█▁");
}

TEST_CASE("bars are blank where nothing was counted") {
  CHECK(train::bars(std::vector<int64_t>{0, 1, 800, 400}) == " ▁█▅");
  CHECK(train::bars(std::vector<int64_t>{0, 0}) == "  ");
  CHECK(train::bars(std::vector<int64_t>{}).empty());
}
