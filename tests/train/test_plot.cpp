#include <cstdlib>
#include <regex>

#include <doctest/doctest.h>

#include "core/error.h"
#include "tests/core/contains.h"
#include "train/plot.h"

using namespace minim;
using namespace minim::test;
using namespace minim::train;

namespace {

// Where the markers are: "translate(x y)" in order.
std::vector<std::pair<double, double>> markers_of(const std::string& svg) {
  static const std::regex place("mark' transform='translate\\(([0-9.]+) ([0-9.]+)\\)'");
  std::vector<std::pair<double, double>> found;
  for (auto at = std::sregex_iterator(svg.begin(), svg.end(), place); at != std::sregex_iterator();
       ++at)
    found.emplace_back(std::stod((*at)[1]), std::stod((*at)[2]));
  return found;
}

}  // namespace

TEST_CASE("a linear axis spaces equal differences equally, upwards") {
  Plot plot("t", {"x", 0, 10}, {"y", 0, 1});
  for (int i = 0; i <= 2; ++i)
    plot.point(5 * i, 0.5 * i, i, "p");
  const auto marks = markers_of(plot.svg());
  REQUIRE(marks.size() == 3);
  CHECK(marks[1].first - marks[0].first == doctest::Approx(marks[2].first - marks[1].first));
  CHECK(marks[1].second == doctest::Approx((marks[0].second + marks[2].second) / 2));
  CHECK(marks[0].second > marks[2].second);  // SVG counts from the top
}

TEST_CASE("a logarithmic axis spaces equal ratios equally") {
  Plot plot("t", {"x", 1, 100, true}, {"y", 0, 1});
  for (const double x : {1.0, 10.0, 100.0})
    plot.point(x, 0.5, 0, "p");
  const auto marks = markers_of(plot.svg());
  CHECK(marks[1].first - marks[0].first == doctest::Approx(marks[2].first - marks[1].first));
}

TEST_CASE("ticks are round numbers within the axis") {
  const std::string linear = Plot("t", {"x", 0, 1}, {"y", 0.81, 0.89}).svg();
  for (const char* tick : {">0.2<", ">0.8<", ">0.82<", ">0.88<"})
    CHECK(contains(linear, tick));
  const std::string logarithmic = Plot("t", {"x", 0.05, 300, true}, {"y", 0, 1}).svg();
  for (const char* tick : {">0.1<", ">1<", ">10<", ">100<"})
    CHECK(contains(logarithmic, tick));
  CHECK(!contains(logarithmic, ">1000<"));
}

TEST_CASE("labels of points in one place do not lie on each other") {
  Plot plot("t", {"x", 0, 1}, {"y", 0, 1});
  plot.point(0.5, 0.5, 0, "adamw");
  plot.point(0.5, 0.5, 1, "adam");
  plot.point(0.5, 0.5, 2, "sgd");
  const std::string svg = plot.svg();
  static const std::regex place(
      "class='name' x='([0-9.]+)' y='([0-9.]+)' text-anchor='([a-z]+)'>([a-z]+)<");
  struct Box {
    double begin, end, baseline;
  };
  std::vector<Box> boxes;
  for (auto at = std::sregex_iterator(svg.begin(), svg.end(), place); at != std::sregex_iterator();
       ++at) {
    // No letter is wider than its height.
    const double x = std::stod((*at)[1]), length = 7.0 * double((*at)[4].length());
    const double begin = x - ((*at)[3] == "end" ? length : (*at)[3] == "middle" ? length / 2 : 0);
    boxes.push_back({begin, begin + length, std::stod((*at)[2])});
  }
  REQUIRE(boxes.size() == 3);
  for (size_t i = 0; i < boxes.size(); ++i)
    for (size_t j = 0; j < i; ++j) {
      const bool beside = boxes[i].end <= boxes[j].begin || boxes[j].end <= boxes[i].begin;
      CHECK((beside || std::abs(boxes[i].baseline - boxes[j].baseline) >= 12));
    }
}

TEST_CASE("series beyond the sixth have a colour again, with another marker and other dashes") {
  Plot plot("t", {"x", 0, 1}, {"y", 0, 1});
  plot.line({0, 1}, {0, 1}, 1, "second", true);
  plot.line({0, 1}, {0, 1}, 7, "eighth", true);
  const std::string svg = plot.svg();
  CHECK(contains(svg, "s1 d1 curve"));
  CHECK(contains(svg, "s1 d2 curve"));
  CHECK(contains(svg, ">eighth</text>"));
}

TEST_CASE("names at the right edge keep apart, in the order of what they name") {
  Plot plot("t", {"x", 0, 1}, {"y", 0, 1});
  for (const char* name : {"3", "2", "1"})
    plot.tag(1, 0.5, name);
  plot.tag(1, 0.9, "0");
  const std::string svg = plot.svg();
  static const std::regex place("class='name' x='504' y='([0-9.]+)'>([0-9])<");
  std::vector<std::pair<double, std::string>> tags;
  for (auto at = std::sregex_iterator(svg.begin(), svg.end(), place); at != std::sregex_iterator();
       ++at)
    tags.emplace_back(std::stod((*at)[1]), (*at)[2]);
  REQUIRE(tags.size() == 4);
  CHECK(tags[0].second == "0");
  for (size_t i = 1; i < tags.size(); ++i)
    CHECK(tags[i].first - tags[i - 1].first >= 12);
}

TEST_CASE("a line of very many points keeps its peaks and stays small") {
  std::vector<double> x, y;
  for (int i = 0; i < 100000; ++i) {
    x.push_back(i);
    y.push_back(i == 55555 ? 1 : 0.25);
  }
  Plot plot("t", {"x", 0, 100000}, {"y", 0, 1});
  plot.line(x, y, 0, "");
  CHECK(plot.svg().size() < 40000);
  CHECK(contains(plot.svg(), " 32.0L"));  // the upper edge
}

TEST_CASE("names are text, whatever they hold") {
  Plot plot("a < b & 'c'", {"x", 0, 1}, {"y", 0, 1});
  plot.point(0.5, 0.5, 0, "<script>");
  CHECK(contains(plot.svg(), "a &lt; b &amp; &#39;c&#39;"));
  CHECK(contains(plot.svg(), "&lt;script&gt;"));
  CHECK(!contains(plot.svg(), "<script>"));
}

TEST_CASE("an axis around values leaves room, and begins at 0 where they are near it") {
  const Axis scores = axis_around("accuracy", {0.80, 0.90});
  CHECK(scores.low == doctest::Approx(0.785));
  CHECK(scores.high == doctest::Approx(0.915));
  CHECK(axis_around("s", {0.01, 5}).low == 0);
  CHECK(axis_around("same", {3, 3}).high > 3);
  const Axis bytes = axis_around("MiB", {0.1, 500}, true);
  CHECK(bytes.low > 0);
  CHECK(bytes.low < 0.1);
}

TEST_CASE("axes and lines that cannot be drawn are refused") {
  CHECK_THROWS_WITH_AS(Plot("t", {"x", 1, 1}, {"y", 0, 1}), "plot t: axis x from 1 to 1 is empty",
                       Error);
  CHECK_THROWS_WITH_AS(Plot("t", {"x", 0, 1, true}, {"y", 0, 1}),
                       "plot t: axis x from 0 to 1 is empty", Error);
  CHECK_THROWS_WITH_AS(axis_around("x", {}), "axis x: there is nothing to show", Error);
  Plot plot("t", {"x", 0, 1}, {"y", 0, 1});
  CHECK_THROWS_WITH_AS(plot.line({0, 1}, {0}, 0, "l"), "plot t: a line of 2 x and 1 y", Error);
}
