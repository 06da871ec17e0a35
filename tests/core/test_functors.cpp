#include <cmath>
#include <limits>
#include <map>
#include <string>

#include <doctest/doctest.h>

#include "core/functors.h"

namespace minim {
namespace {

// Central difference of four points: exact to h^4 / 30 times the fifth derivative.
template <class F>
double slope(F f, double x) {
  constexpr double h = 0x1p-11;
  return (8 * (f(x + h) - f(x - h)) - (f(x + 2 * h) - f(x - 2 * h))) / (12 * h);
}

template <class F>
void check_unary_derivative() {
  CAPTURE(F::name);
  const std::string name = F::name;
  const bool positive = name == "log" || name == "sqrt" || name == "rsqrt";
  for (double x = positive ? 0.253 : -6.003; x < 6; x += 0.01) {
    if ((name == "relu" || name == "abs") && std::abs(x) < 2e-3) continue;  // the kink
    CAPTURE(x);
    const double expected = slope([](double v) { return F{}(v); }, x);
    CHECK(std::abs(F{}.grad(x, F{}(x)) - expected) <= 1e-8 * (1 + std::abs(expected)));
  }
}

template <class... Fs>
void check_unary_derivatives(TypeList<Fs...>) {
  (check_unary_derivative<Fs>(), ...);
}

TEST_CASE("the derivative of every unary functor equals differences") {
  check_unary_derivatives(UnaryFunctors{});
}

template <class F>
void check_binary_derivative() {
  CAPTURE(F::name);
  for (double a = -3; a < 3; a += 0.37)
    for (double b = -3.05; b < 3; b += 0.41) {
      if (std::abs(b) < 0.2) continue;  // division
      CAPTURE(a);
      CAPTURE(b);
      const double y = F{}(a, b);
      const double by_a = slope([b](double v) { return F{}(v, b); }, a);
      const double by_b = slope([a](double v) { return F{}(a, v); }, b);
      CHECK(std::abs(F{}.grad_a(a, b, y) - by_a) <= 1e-8 * (1 + std::abs(by_a)));
      CHECK(std::abs(F{}.grad_b(a, b, y) - by_b) <= 1e-8 * (1 + std::abs(by_b)));
      if (F::linear) CHECK(F{}.grad_a(a, b, y) == F{}.grad_a(0.0, 0.0, 0.0));
    }
}

template <class... Fs>
void check_binary_derivatives(TypeList<Fs...>) {
  (check_binary_derivative<Fs>(), ...);
}

TEST_CASE("the derivatives of every binary functor equal differences") {
  check_binary_derivatives(BinaryFunctors{});
}

// Straight from the definitions, with libm.
const std::map<std::string, double (*)(double)>& definitions() {
  static const std::map<std::string, double (*)(double)> table = {
      {"gelu", [](double x) { return x / 2 * (1 + std::erf(x / std::sqrt(2))); }},
      {"gelu_tanh",
       [](double x) {
         return x / 2 * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
       }},
      {"quick_gelu", [](double x) { return x / (1 + std::exp(-1.702 * x)); }},
      {"silu", [](double x) { return x / (1 + std::exp(-x)); }},
      {"mish", [](double x) { return x * std::tanh(std::log1p(std::exp(x))); }},
      {"relu", [](double x) { return std::max(x, 0.0); }},
      {"tanh", [](double x) { return std::tanh(x); }},
      {"sigmoid", [](double x) { return 1 / (1 + std::exp(-x)); }},
      {"exp", [](double x) { return std::exp(x); }},
      {"log", [](double x) { return std::log(x); }},
      {"sqrt", [](double x) { return std::sqrt(x); }},
      {"rsqrt", [](double x) { return 1 / std::sqrt(x); }},
      {"abs", [](double x) { return std::abs(x); }},
      {"neg", [](double x) { return -x; }},
      {"square", [](double x) { return x * x; }},
  };
  return table;
}

template <class F>
void check_value() {
  CAPTURE(F::name);
  const auto exact = definitions().at(F::name);
  for (double x = -12.03; x < 12; x += 0.013) {
    const double expected = exact(x);
    if (std::isnan(expected)) continue;
    CAPTURE(x);
    const auto single = float(x);
    const double rounded = exact(double(single));
    CHECK(std::abs(F{}(x)-expected) <= 1e-14 * (1 + std::abs(expected)));
    CHECK(std::abs(double(F{}(single)) - rounded) <= 1e-6 * (0.5 + std::abs(rounded)));
  }
  CHECK(std::isnan(F{}(std::numeric_limits<float>::quiet_NaN())));
  CHECK(std::isnan(F{}(std::numeric_limits<double>::quiet_NaN())));
}

template <class... Fs>
void check_values(TypeList<Fs...>) {
  CHECK(definitions().size() == sizeof...(Fs));
  (check_value<Fs>(), ...);
}

TEST_CASE("every unary functor has the value of its definition in f64 and f32, and keeps NaN") {
  check_values(UnaryFunctors{});
}

TEST_CASE("a functor has a place in its list") {
  CHECK(UnaryFunctors::index_of<Gelu>() == 0);
  CHECK(UnaryFunctors::index_of<Square>() == UnaryFunctors::size - 1);
  CHECK(UnaryFunctors::index_of<Add>() == UnaryFunctors::size);
  CHECK(BinaryFunctors::index_of<Div>() == 3);
}

TEST_CASE("activations stay finite for large inputs") {
  for (float x : {-1e4f, -100.0f, 100.0f, 1e4f}) {
    CAPTURE(x);
    const float line = x > 0 ? x : 0.0f, one = x > 0 ? 1.0f : 0.0f;
    CHECK(Gelu{}(x) == line);
    CHECK(GeluTanh{}(x) == line);
    CHECK(QuickGelu{}(x) == line);
    CHECK(std::abs(Silu{}(x)-line) < 1e-37f);
    CHECK(std::abs(Mish{}(x)-line) < 1e-37f);
    CHECK(Gelu{}.grad(x, 0.0f) == one);
    CHECK(GeluTanh{}.grad(x, 0.0f) == one);
    CHECK(QuickGelu{}.grad(x, 0.0f) == one);
    CHECK(std::abs(Silu{}.grad(x, 0.0f) - one) < 1e-37f);
    CHECK(std::abs(Mish{}.grad(x, 0.0f) - one) < 1e-37f);
  }
}

}  // namespace
}  // namespace minim
