#include <doctest/doctest.h>

#include "core/shape.h"

namespace minim {
namespace {

TEST_CASE("a shape is a short list of extents") {
  Shape s = {2, 3};
  CHECK(s.rank() == 2);
  CHECK(s.numel() == 6);
  CHECK(Shape{}.numel() == 1);
  CHECK(Shape{4, 0, 5}.numel() == 0);
  s.insert(1, 7);
  CHECK(s == Shape{2, 7, 3});
  s.insert(0, 1);
  s.insert(4, 9);
  CHECK(s == Shape{1, 2, 7, 3, 9});
  s.erase(0);
  s.erase(3);
  CHECK(s == Shape{2, 7, 3});
  CHECK_FALSE(s == Shape{2, 7});
  CHECK(s.to_string() == "[2, 7, 3]");
  CHECK(fmt::format("{}", Shape{}) == "[]");
  CHECK_THROWS_WITH_AS((Shape{1, 1, 1, 1, 1, 1, 1, 1, 1}), "shape: more than 8 dimensions", Error);
}

TEST_CASE("contiguous strides step over all inner extents") {
  CHECK(contiguous_strides({2, 3, 4}) == Shape{12, 4, 1});
  CHECK(contiguous_strides({}) == Shape{});
  CHECK(contiguous_strides({5, 0, 2}) == Shape{0, 2, 1});
}

TEST_CASE("dimensions count from either end") {
  CHECK(normalize_dim(-1, {2, 3, 4}, "sum") == 2);
  CHECK(normalize_dim(0, {2, 3, 4}, "sum") == 0);
  CHECK_THROWS_WITH_AS(normalize_dim(3, {2, 3, 4}, "sum"),
                       "sum: dim 3 is out of range for shape [2, 3, 4]", Error);
  CHECK_THROWS_WITH_AS(normalize_dim(-4, {2, 3, 4}, "sum"),
                       "sum: dim -4 is out of range for shape [2, 3, 4]", Error);
}

TEST_CASE("shapes broadcast by NumPy's rule") {
  CHECK(broadcast_shapes({2, 3}, {3}, "add") == Shape{2, 3});
  CHECK(broadcast_shapes({4, 1, 3}, {5, 1}, "add") == Shape{4, 5, 3});
  CHECK(broadcast_shapes({}, {2, 2}, "add") == Shape{2, 2});
  CHECK(broadcast_shapes({1}, {0}, "add") == Shape{0});
  CHECK(broadcast_shapes({0, 3}, {1, 3}, "add") == Shape{0, 3});
  CHECK_THROWS_WITH_AS(broadcast_shapes({2, 3}, {4, 2}, "add"),
                       "add: shapes [2, 3] and [4, 2] do not broadcast", Error);
  CHECK_THROWS_WITH_AS(broadcast_shapes({2}, {0}, "mul"),
                       "mul: shapes [2] and [0] do not broadcast", Error);
}

}  // namespace
}  // namespace minim
