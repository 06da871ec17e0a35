#include <doctest/doctest.h>

#include "optim/adamw.h"
#include "tests/optim/optim_testing.h"

using namespace minim;
using namespace minim::optim;
using namespace minim::test;

// AdamW from the first step on, one idea per test. p is a parameter, g its gradient, m and v the
// moving averages of g and g^2 (exp_avg, exp_avg_sq), t the number of the step.

TEST_CASE("adamw: one step of one weight, by hand") {
  const Tensor p = scalar(1.0);
  AdamW optimizer({{"p", p}}, {.lr = 1e-3, .weight_decay = 0.01});
  set_gradient(p, 0.1);
  optimizer.step();
  // decay     p = 1 * (1 - 0.001 * 0.01)                         = 0.99999
  // averages  m = 0   + 0.1 * (0.1 - 0)                          = 0.01
  //           v = 0   + 0.001 * 0.1^2                            = 0.00001
  // unbiased  m / (1 - 0.9^1) = 0.1,  sqrt(v / (1 - 0.999^1))    = 0.1
  // update    p = 0.99999 - 0.001 * 0.1 / (0.1 + 0.00000001)     = 0.9989900001
  CHECK(optimizer.state("p").exp_avg.item() == doctest::Approx(0.01).epsilon(1e-14));
  CHECK(optimizer.state("p").exp_avg_sq.item() == doctest::Approx(1e-5).epsilon(1e-14));
  CHECK(optimizer.state("p").step == 1);
  CHECK(p.item() == doctest::Approx(0.9989900001).epsilon(1e-14));
}

TEST_CASE("adamw: the second and the third step, as torch.optim.AdamW takes them") {
  const Tensor p = scalar(1.0);
  AdamW optimizer({{"p", p}});
  for (const auto& [gradient, expected] :
       {std::pair(0.1, 0.9989900001), {-0.2, 0.9993461137038839}, {0.3, 0.9989928791783396}}) {
    set_gradient(p, gradient);
    optimizer.step();
    CHECK(p.item() == doctest::Approx(expected).epsilon(1e-14));
  }
}

TEST_CASE(
    "adamw: bias correction makes the first step as long as the rate, whatever the gradient") {
  // m = (1 - b1) g and v = (1 - b2) g^2 are far too small at t = 1. Divided by 1 - b1 and 1 - b2
  // they give g and g^2, so that the step is lr * g / |g|: Adam looks at the sign alone.
  for (const double gradient : {1e-4, 1.0, 1e4, -3.0})
    for (const double beta2 : {0.5, 0.999, 0.99999}) {
      const Tensor p = scalar(0.0);
      AdamW optimizer({{"p", p}}, {.lr = 0.01, .beta2 = beta2, .eps = 0.0, .weight_decay = 0.0});
      set_gradient(p, gradient);
      optimizer.step();
      CHECK(p.item() == doctest::Approx(gradient > 0 ? -0.01 : 0.01).epsilon(1e-12));
    }
}

TEST_CASE("adamw: eps is added after the bias correction, so it counts against the true gradient") {
  // p = -lr * g / (|g| + eps): with g = eps half a step.
  const Tensor p = scalar(0.0);
  AdamW optimizer({{"p", p}}, {.lr = 0.01, .eps = 1e-3, .weight_decay = 0.0});
  set_gradient(p, 1e-3);
  optimizer.step();
  CHECK(p.item() == doctest::Approx(-0.005).epsilon(1e-12));
}

TEST_CASE("adamw: decay is decoupled: it shrinks a weight by lr * decay whatever its gradient") {
  for (const double gradient : {0.0, 1e-3, 1e3}) {
    const Tensor with = scalar(2.0), without = scalar(2.0);
    AdamW decayed({{"p", with}}, {.lr = 0.1, .weight_decay = 0.05});
    AdamW plain({{"p", without}}, {.lr = 0.1, .weight_decay = 0.0});
    set_gradient(with, gradient);
    set_gradient(without, gradient);
    decayed.step();
    plain.step();
    CHECK(without.item() - with.item() == doctest::Approx(0.1 * 0.05 * 2.0).epsilon(1e-12));
  }
}

TEST_CASE("adamw: L2 decay, added to the gradient, would be normalised away instead") {
  // The gradient of g * p + decay / 2 * p^2 is g + decay * p. Adam divides it by its own size, so
  // the first step is lr either way: a strong and a weak decay do the same.
  for (const double decay : {1e-3, 10.0}) {
    const Tensor p = scalar(2.0);
    AdamW optimizer({{"p", p}}, {.lr = 0.1, .eps = 0.0, .weight_decay = 0.0});
    set_gradient(p, 1.0 + decay * 2.0);
    optimizer.step();
    CHECK(p.item() == doctest::Approx(2.0 - 0.1).epsilon(1e-12));
  }
}

TEST_CASE(
    "adamw: amsgrad keeps the largest second moment, so a rare large gradient is remembered") {
  const Tensor p = scalar(0.0), q = scalar(0.0);
  AdamW amsgrad({{"p", p}}, {.beta2 = 0.5, .weight_decay = 0.0, .amsgrad = true});
  AdamW plain({{"q", q}}, {.beta2 = 0.5, .weight_decay = 0.0});
  for (const double gradient : {4.0, 0.0, 0.0, 0.0}) {
    set_gradient(p, gradient);
    set_gradient(q, gradient);
    amsgrad.step();
    plain.step();
  }
  // v = 8 after the first step (half of 4^2), then 4, 2, 1.
  CHECK(amsgrad.state("p").max_exp_avg_sq.item() == 8.0);
  CHECK(amsgrad.state("p").exp_avg_sq.item() == 1.0);
  CHECK(plain.state("q").exp_avg_sq.item() == 1.0);
  CHECK_FALSE(plain.state("q").max_exp_avg_sq.defined());
  CHECK(std::abs(p.item()) < std::abs(q.item()));
}

TEST_CASE("adamw: maximize climbs: exactly the step of the negated gradient") {
  const Tensor up = scalar(1.0), down = scalar(1.0);
  AdamW climb({{"p", up}}, {.maximize = true});
  AdamW descend({{"p", down}});
  for (const double gradient : {0.3, -0.7, 0.2}) {
    set_gradient(up, gradient);
    set_gradient(down, -gradient);
    climb.step();
    descend.step();
    CHECK(up.item() == down.item());
  }
}

TEST_CASE("adamw: half-precision weights have f32 moments and are rounded once per step") {
  const auto check_dtype = [](DType dtype) {
    const Tensor wide = parameter(noise(100, 3), {100});
    const Tensor half = convert(wide, dtype);
    Tensor(half).set_requires_grad();
    const Tensor exact = convert(half, DType::f32);
    AdamW optimizer({{"p", half}});
    AdamW in_f32({{"p", exact}});
    const Tensor gradient = convert(Tensor::from(noise(100, 5), {100}), dtype);
    Tensor(half).set_grad(gradient);
    Tensor(exact).set_grad(convert(gradient, DType::f32));
    optimizer.step();
    in_f32.step();
    CHECK(optimizer.state("p").exp_avg.dtype() == DType::f32);
    CHECK(optimizer.state("p").exp_avg_sq.to_vector<float>() ==
          in_f32.state("p").exp_avg_sq.to_vector<float>());
    CHECK(half.to_vector<float>() == convert(exact, dtype).to_vector<float>());
  };
  check_dtype(DType::bf16);
  check_dtype(DType::f16);
}

TEST_CASE("adamw: an all-zero gradient moves nothing but the decay") {
  const Tensor p = parameter(std::vector<float>{1.0f, -2.0f}, {2});
  AdamW optimizer({{"p", p}}, {.lr = 0.5, .weight_decay = 0.5});
  set_gradient(p, 0.0);
  optimizer.step();  // 0 / (0 + eps) is 0, also in f32
  CHECK(p.to_vector<float>() == std::vector<float>{0.75f, -1.5f});
}

TEST_CASE("adamw: options that make no sense are refused by name") {
  const Tensor p = scalar(1.0);
  const auto error = [&p](AdamWRule::Options options) {
    return error_of([&] { AdamW({{"p", p}}, options); });
  };
  const double nan = std::nan("");
  CHECK(error({.lr = -1e-3}) == "adamw: lr is -0.001, must be finite and not negative");
  CHECK(error({.lr = nan}) == "adamw: lr is nan, must be finite and not negative");
  CHECK(error({.lr = INFINITY}) == "adamw: lr is inf, must be finite and not negative");
  CHECK(error({.beta1 = 1.0}) == "adamw: beta1 is 1, must be at least 0 and less than 1");
  CHECK(error({.beta1 = nan}) == "adamw: beta1 is nan, must be at least 0 and less than 1");
  CHECK(error({.beta2 = -0.1}) == "adamw: beta2 is -0.1, must be at least 0 and less than 1");
  CHECK(error({.eps = -1e-8}) == "adamw: eps is -1e-08, must be finite and not negative");
  CHECK(error({.weight_decay = -0.1}) ==
        "adamw: weight_decay is -0.1, must be finite and not negative");
  CHECK(error({.lr = 0.0, .beta1 = 0.0, .beta2 = 0.0, .eps = 0.0, .weight_decay = 0.0}) == "");
}
