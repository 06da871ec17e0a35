#include <cmath>
#include <vector>

#include <doctest/doctest.h>

#include "core/error.h"
#include "train/statistics.h"

using namespace minim;
using namespace minim::train;

namespace {

// Hours of sleep gained by ten patients under two drugs (Student, "The probable error of a mean",
// 1908), the example of every text on the t-test.
const std::vector<double> first = {0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0};
const std::vector<double> second = {1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4};

}  // namespace

TEST_CASE("a sample is summed up by its mean and its standard deviation over n - 1") {
  const std::vector<double> sample = {2, 4, 9};  // mean 5, squares 9 + 1 + 16 = 26, over 2
  const Summary summary = summarize(sample);
  CHECK(summary.count == 3);
  CHECK(summary.mean == doctest::Approx(5));
  CHECK(summary.sd == doctest::Approx(std::sqrt(13.0)));
  CHECK(std::isnan(summarize(std::vector<double>{1}).sd));
  CHECK(std::isnan(summarize({}).mean));
}

TEST_CASE("Student's t with one and two degrees of freedom has a short formula") {
  for (const double t : {0.0, 0.3, 1.0, -2.5, 40.0}) {
    CHECK(students_t_p_value(t, 1) == doctest::Approx(1 - 2 / M_PI * std::atan(std::abs(t))));
    CHECK(students_t_p_value(t, 2) == doctest::Approx(1 - std::abs(t) / std::sqrt(t * t + 2)));
  }
}

TEST_CASE("the critical values of the tables come out at their five per cent") {
  const std::vector<std::pair<int64_t, double>> table = {{1, 12.7062}, {2, 4.30265}, {3, 3.18245},
                                                         {4, 2.77645}, {9, 2.26216}, {10, 2.22814},
                                                         {30, 2.04227}};
  // Six digits of t are five of p.
  for (const auto& [freedom, t] : table)
    CHECK(students_t_p_value(t, freedom) == doctest::Approx(0.05).epsilon(2e-5));
}

TEST_CASE("Student's own data: pairs tell what independent samples do not") {
  // t = 4.0621 with 9 degrees of freedom.
  CHECK(paired_difference(first, second).p_value() == doctest::Approx(0.002833).epsilon(1e-3));
  // t = 1.8608 with 17.776 degrees has p = 0.07939; rounded down to 17 it is a little more.
  const double p = welch_difference(first, second).p_value();
  CHECK(p > 0.07939);
  CHECK(p < 0.081);
}

TEST_CASE("an interval for a difference is as wide as tables and Student's data say") {
  // By the tables above: of 0.05 at 2 and at 9 degrees.
  CHECK(students_t_quantile(0.05, 2) == doctest::Approx(4.30265).epsilon(1e-5));
  CHECK(students_t_quantile(0.05, 9) == doctest::Approx(2.26216).epsilon(1e-5));
  // The drugs differ by -1.58 with an error of 1.58 / 4.0621; textbooks give -2.46 to -0.70.
  const MeanDifference drugs = paired_difference(first, second);
  CHECK(drugs.mean == doctest::Approx(-1.58));
  CHECK(drugs.mean - drugs.reach(0.05) == doctest::Approx(-2.4599).epsilon(1e-4));
  CHECK(drugs.mean + drugs.reach(0.05) == doctest::Approx(-0.7001).epsilon(1e-4));
  CHECK_THROWS_WITH_AS(students_t_quantile(1, 2),
                       "students_t_quantile: p is 1, must be between 0 and 1", Error);
}

TEST_CASE("samples without spread: equal ones show nothing, different ones everything") {
  const std::vector<double> ones = {1, 1, 1}, twos = {2, 2, 2};
  CHECK(paired_difference(ones, ones).p_value() == 1);
  CHECK(welch_difference(ones, ones).p_value() == 1);
  CHECK(paired_difference(ones, twos).p_value() == 0);
  CHECK(welch_difference(ones, twos).p_value() == 0);
}

TEST_CASE("samples that are too small or do not pair up are refused") {
  const std::vector<double> one = {1}, two = {1, 2}, three = {1, 2, 3};
  CHECK_THROWS_WITH_AS(paired_difference(two, three),
                       "paired_difference: samples of 2 and 3, must be equally many, at least two",
                       Error);
  CHECK_THROWS_WITH_AS(welch_difference(one, three),
                       "welch_difference: samples of 1 and 3, must be at least two", Error);
  CHECK_THROWS_WITH_AS(students_t_p_value(1, 0),
                       "students_t_p_value: 0 degrees of freedom, must be at least 1", Error);
}
