#include <doctest/doctest.h>

#include "optim/sgd.h"
#include "tests/optim/optim_testing.h"

using namespace minim;
using namespace minim::optim;
using namespace minim::test;

// The yardstick: what the other optimizers add to this.

namespace {

// p after each of three steps from 1 with gradients 1, 2, -1.
std::vector<double> three_steps(SgdRule::Options options) {
  const Tensor p = scalar(1.0);
  Sgd optimizer({{"p", p}}, options);
  std::vector<double> values;
  for (const double gradient : {1.0, 2.0, -1.0}) {
    set_gradient(p, gradient);
    optimizer.step();
    values.push_back(p.item());
  }
  return values;
}

void check_near(const std::vector<double>& got, const std::vector<double>& expected) {
  REQUIRE(got.size() == expected.size());
  for (size_t i = 0; i < got.size(); ++i)
    CHECK(got[i] == doctest::Approx(expected[i]).epsilon(1e-14));
}

}  // namespace

TEST_CASE("sgd: without momentum a step is lr times the gradient, and nothing is kept") {
  check_near(three_steps({.lr = 0.1}), {0.9, 0.7, 0.8});
  const ParameterSpec w{"w", {100}, DType::f32};
  CHECK(state_size<SgdRule>({&w, 1}).bytes == 0);
  CHECK(state_size<SgdRule>({&w, 1}, {.momentum = 0.9}).bytes == 400);
}

TEST_CASE("sgd: momentum keeps half of the last step's direction") {
  // buffer = 1, then 0.5 * 1 + 2 = 2.5, then 0.5 * 2.5 - 1 = 0.25
  check_near(three_steps({.lr = 0.1, .momentum = 0.5}), {0.9, 0.65, 0.625});
}

TEST_CASE("sgd: dampening does not touch the first gradient") {
  // buffer = 1, then 0.5 * 1 + 0.75 * 2 = 2, then 0.5 * 2 - 0.75 = 0.25
  check_near(three_steps({.lr = 0.1, .momentum = 0.5, .dampening = 0.25}), {0.9, 0.7, 0.675});
}

TEST_CASE("sgd: nesterov steps along the gradient and half of the new buffer") {
  // g + 0.5 * buffer = 1 + 0.5, then 2 + 1.25, then -1 + 0.125
  check_near(three_steps({.lr = 0.1, .momentum = 0.5, .nesterov = true}), {0.85, 0.525, 0.6125});
}

TEST_CASE("sgd: decay is L2, which without a denominator is the same as decoupled") {
  // p = 1 - 0.1 (1 + 0.5) = 0.85, then 0.85 - 0.1 (2 + 0.425), then 0.6075 - 0.1 (-1 + 0.30375)
  check_near(three_steps({.lr = 0.1, .weight_decay = 0.5}), {0.85, 0.6075, 0.677125});
}

TEST_CASE("sgd: maximize climbs") {
  check_near(three_steps({.lr = 0.1, .maximize = true}), {1.1, 1.3, 1.2});
}

TEST_CASE("sgd: options that contradict each other are refused") {
  const auto error = [](SgdRule::Options options) {
    return error_of([&] { three_steps(options); });
  };
  CHECK(error({.momentum = -0.5}) == "sgd: momentum is -0.5, must be finite and not negative");
  CHECK(error({.nesterov = true}) ==
        "sgd: nesterov needs a momentum above 0 and no dampening, got 0 and 0");
  CHECK(error({.momentum = 0.5, .dampening = 0.5, .nesterov = true}) ==
        "sgd: nesterov needs a momentum above 0 and no dampening, got 0.5 and 0.5");
  CHECK(error({.dampening = 0.5}) == "sgd: dampening is 0.5 without momentum, which it dampens");
  CHECK(error({.momentum = 0.5, .dampening = 2.0}) ==
        "sgd: dampening is 2, must be at least 0 and at most 1");
}
