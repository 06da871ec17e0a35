#include <cmath>
#include <limits>

#include <doctest/doctest.h>

#include "core/math.h"

namespace minim {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float nan = std::numeric_limits<float>::quiet_NaN();

// Largest |f(x) - exact(x)| / (|exact(x)| + floor) over about two million points of [low, high].
template <class F, class Exact>
double worst_error(float low, float high, F f, Exact exact, double floor = 0) {
  double worst = 0;
  constexpr int points = 2000000;
  for (int i = 0; i <= points; ++i) {
    const float x = low + (high - low) * (float(i) / points);
    const double expected = exact(double(x));
    const double error = std::abs(double(f(x)) - expected) / (std::abs(expected) + floor);
    if (!(error <= worst)) worst = error;  // NaN is the worst
  }
  return worst;
}

constexpr auto f32_exp = [](float x) { return math::exp(x); };
constexpr auto f32_tanh = [](float x) { return math::tanh(x); };

TEST_CASE("exp is within 2 ulp where its result is a normal number") {
  const auto exact = [](double x) { return std::exp(x); };
  // One ulp is between 6e-8 and 1.2e-7 of the value.
  CHECK(worst_error(-87.33f, 88.72f, f32_exp, exact) < 1.2e-7);
  CHECK(worst_error(-1, 1, f32_exp, exact) < 1.2e-7);
}

TEST_CASE("exp at its ends") {
  CHECK(math::exp(0.0f) == 1.0f);
  CHECK(math::exp(-0.0f) == 1.0f);
  CHECK(math::exp(88.73f) == infinity);
  CHECK(math::exp(1e30f) == infinity);
  CHECK(math::exp(infinity) == infinity);
  CHECK(math::exp(-87.34f) == 0.0f);
  CHECK(math::exp(-1e30f) == 0.0f);
  CHECK(math::exp(-infinity) == 0.0f);
  CHECK(std::isnan(math::exp(nan)));
  CHECK(std::isnan(math::exp(-nan)));
  CHECK(std::isfinite(math::exp(88.72f)));
  CHECK(math::exp(-87.33f) > 0.0f);
}

TEST_CASE("erfc_factor is within 6e-7 for z >= 0") {
  // erfcx(z) = exp(z^2) erfc(z); beyond 6 its asymptotic series is good to 1e-9.
  const auto erfcx = [](double z) {
    if (z < 6) return std::exp(z * z) * std::erfc(z);
    const double q = 1 / (2 * z * z);
    return (1 - q * (1 - 3 * q * (1 - 5 * q * (1 - 7 * q)))) / (z * std::sqrt(M_PI));
  };
  const auto f = [](float z) { return math::erfc_factor(z); };
  CHECK(worst_error(0, 6, f, erfcx) < 6e-7);
  CHECK(worst_error(6, 100, f, erfcx) < 6e-7);
  CHECK(math::erfc_factor(infinity) == 0.0f);
}

TEST_CASE("tanh is within 4e-7") {
  const auto exact = [](double x) { return std::tanh(x); };
  CHECK(worst_error(-10, 10, f32_tanh, exact) < 4e-7);
  CHECK(worst_error(-1, 1, f32_tanh, exact) < 4e-7);
  CHECK(worst_error(-1e-3f, 1e-3f, f32_tanh, exact, 1e-30) < 4e-7);
  CHECK(math::tanh(0.0f) == 0.0f);
  CHECK(math::tanh(1e-30f) == 1e-30f);
  CHECK(math::tanh(infinity) == 1.0f);
  CHECK(math::tanh(-infinity) == -1.0f);
  CHECK(math::tanh(50.0f) == 1.0f);
  CHECK(std::isnan(math::tanh(nan)));
}

TEST_CASE(
    "the normal distribution function is exact to 2e-7, and to 2.5e-5 of itself in the tail") {
  const auto exact = [](double x) { return math::normal_cdf(x); };
  const auto f = [](float x) { return math::normal_cdf(x); };
  CHECK(math::normal_cdf(1.0) == doctest::Approx(0.84134474606854293).epsilon(1e-15));
  CHECK(worst_error(-13, 13, f, exact, 1) < 2e-7);
  // The exponent z^2 = x^2 / 2, up to 84, is off by five roundings: 84 * 5 * 6e-8.
  CHECK(worst_error(-13, 0, f, exact) < 2.5e-5);
  CHECK(math::normal_cdf(0.0f) == doctest::Approx(0.5f).epsilon(1e-6));
  CHECK(math::normal_cdf(infinity) == 1.0f);
  CHECK(math::normal_cdf(-infinity) == 0.0f);
  CHECK(std::isnan(math::normal_cdf(nan)));
}

TEST_CASE("the normal density and the logistic function") {
  const auto density = [](double x) { return std::exp(-0.5 * x * x) / std::sqrt(2 * M_PI); };
  const auto f = [](float x) { return math::normal_pdf(x); };
  CHECK(worst_error(-13, 13, f, density) < 1e-5);
  CHECK(worst_error(-13, 13, f, density, 1) < 1e-7);
  const auto logistic = [](double x) { return 1 / (1 + std::exp(-x)); };
  const auto sigmoid = [](float x) { return math::sigmoid(x); };
  CHECK(worst_error(-80, 80, sigmoid, logistic) < 3e-7);
  CHECK(math::sigmoid(infinity) == 1.0f);
  CHECK(math::sigmoid(-infinity) == 0.0f);
  CHECK(math::sigmoid(0.0f) == 0.5f);
  CHECK(std::isnan(math::sigmoid(nan)));
}

}  // namespace
}  // namespace minim
