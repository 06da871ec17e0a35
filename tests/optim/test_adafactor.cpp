#include <doctest/doctest.h>

#include "optim/adafactor.h"
#include "tests/optim/optim_testing.h"

using namespace minim;
using namespace minim::optim;
using namespace minim::test;

// Adafactor from the first step on, one idea per test. p is a parameter, g its gradient, r and c
// the averages of g^2 over rows and columns (exp_avg_sq_row, exp_avg_sq_col), V the second moment,
// U the update before the rate, t the number of the step.

namespace {

// A plain rate, so that a step is the rate times U.
AdafactorRule::Options at_rate(double lr) {
  return {.lr = lr, .scale_parameter = false, .relative_step = false};
}

// One step of a tensor of zeros at rate 1: -U, clipped.
template <class T>
std::vector<double> one_update(const std::vector<T>& gradient, const Shape& shape,
                               AdafactorRule::Options options = at_rate(1.0)) {
  const Tensor p = parameter(std::vector<T>(gradient.size()), shape);
  Adafactor optimizer({{"p", p}}, options);
  Tensor(p).set_grad(Tensor::from(gradient, shape));
  optimizer.step();
  return p.to_vector<double>();
}

// How far a scalar moves in each of the steps with these gradients.
std::vector<double> moves(const std::vector<double>& gradients, AdafactorRule::Options options,
                          double start = 0.0) {
  const Tensor p = scalar(start);
  Adafactor optimizer({{"p", p}}, options);
  std::vector<double> all;
  for (const double gradient : gradients) {
    const double before = p.item();
    set_gradient(p, gradient);
    optimizer.step();
    all.push_back(before - p.item());
  }
  return all;
}

void check_near(const std::vector<double>& got, const std::vector<double>& expected,
                double relative = 1e-13) {
  REQUIRE(got.size() == expected.size());
  for (size_t i = 0; i < got.size(); ++i)
    CHECK(got[i] == doctest::Approx(expected[i]).epsilon(relative));
}

}  // namespace

TEST_CASE("adafactor: one step of a 2 x 3 matrix, by hand") {
  const Tensor p = parameter(std::vector<double>(6, 1.0), {2, 3});
  Adafactor optimizer({{"p", p}});
  Tensor(p).set_grad(Tensor::from({1.0, 0.0, 1.0, 1.0, 2.0, 1.0}, {2, 3}));
  optimizer.step();
  // rate      a = min(0.01, 1 / sqrt(1)) * max(0.001, RMS(p)) = 0.01 * 1
  // squares   g^2 = 1 0 1    means of rows     r = 2/3, 2   their mean 4/3
  //                 1 4 1    means of columns  c = 1, 2, 1
  // second    V = r_i c_j / (4/3) = 1/2 1 1/2
  // moment                          3/2 3 3/2
  // update    U = g / sqrt(V) = 1.41421 0       1.41421
  //                             0.81650 1.15470 0.81650
  //           U^2 = 2 0 2, 2/3 4/3 2/3, their mean 10/9: U is longer than 1
  // clipped   U / sqrt(10/9) = 3/sqrt(5)  0          3/sqrt(5)      = 1.34164 0       1.34164
  //                            3/sqrt(15) 6/sqrt(30) 3/sqrt(15)       0.77460 1.09545 0.77460
  // and       p = 1 - 0.01 U
  check_near(optimizer.state("p").exp_avg_sq_row.to_vector<double>(), {2.0 / 3, 2.0});
  check_near(optimizer.state("p").exp_avg_sq_col.to_vector<double>(), {1.0, 2.0, 1.0});
  CHECK_FALSE(optimizer.state("p").exp_avg_sq.defined());
  CHECK_FALSE(optimizer.state("p").exp_avg.defined());
  CHECK(optimizer.state("p").step == 1);
  CHECK(optimizer.state("p").rms == 1.0);
  check_near(p.to_vector<double>(),
             {0.98658359213500126, 1.0, 0.98658359213500126, 0.99225403330758517,
              0.98904554884989668, 0.99225403330758517});
}

TEST_CASE("adafactor: where the squares are an outer product, two vectors say all of them") {
  // |g_ij| = a_i b_j with a = 1, 2, 10 and b = 1, 2, 3, 4: then V is g^2 itself and U the sign of
  // g, as Adam's first step would be, for 3 + 4 numbers in place of 12.
  std::vector<double> gradient, signs;
  for (const double a : {1.0, -2.0, 10.0})
    for (const double b : {1.0, 2.0, -3.0, 4.0}) {
      gradient.push_back(a * b);
      signs.push_back(a * b > 0 ? -1.0 : 1.0);
    }
  check_near(one_update(gradient, {3, 4}), signs);
}

TEST_CASE("adafactor: of other squares it keeps the sums over every row and every column") {
  // sum_j V_ij = r_i * sum(c) / mean(r) = r_i * columns, as mean(c) = mean(r): with U = g / sqrt(V)
  // the rows' sums of (g / U)^2 are those of g^2, and so the columns', but for one factor of all
  // where U was clipped.
  const std::vector<double> g = {1, -2, 3, 4, 0.5, -6, 7, 8, 9, 1, 2, -0.25};
  const std::vector<double> u = one_update(g, {3, 4});
  double ratio = 0;
  for (size_t i = 0; i < 3; ++i) {
    double squares = 0, moments = 0;
    for (size_t j = 0; j < 4; ++j) {
      const size_t k = i * 4 + j;
      squares += g[k] * g[k];
      moments += g[k] * g[k] / (u[k] * u[k]);
    }
    if (i == 0) ratio = moments / squares;
    CHECK(moments / squares == doctest::Approx(ratio).epsilon(1e-13));
  }
  for (size_t j = 0; j < 4; ++j) {
    double squares = 0, moments = 0;
    for (size_t k = j; k < 12; k += 4) {
      squares += g[k] * g[k];
      moments += g[k] * g[k] / (u[k] * u[k]);
    }
    CHECK(moments / squares == doctest::Approx(ratio).epsilon(1e-13));
  }
}

TEST_CASE(
    "adafactor: vectors and scalars are not factored; the first step is the gradient's sign") {
  const Tensor p = parameter(std::vector<double>(3), {3});
  Adafactor optimizer({{"p", p}}, at_rate(0.5));
  Tensor(p).set_grad(Tensor::from({1e-3, -2.0, 30.0}, {3}));
  optimizer.step();
  check_near(optimizer.state("p").exp_avg_sq.to_vector<double>(), {1e-6, 4.0, 900.0});
  CHECK_FALSE(optimizer.state("p").exp_avg_sq_row.defined());
  check_near(p.to_vector<double>(), {-0.5, 0.5, -0.5});
  check_near(one_update(std::vector<double>{4.0}, {}), {-1.0});
}

TEST_CASE(
    "adafactor: more dimensions are a stack of matrices, each with rows and columns of its own") {
  // Rank-one matrices of very different size: each comes out as its signs.
  check_near(one_update(std::vector<double>{1, 2, -2, -4, 1e5, 3e5, -2e5, -6e5}, {2, 2, 2}),
             {-1, -1, 1, 1, -1, -1, 1, 1});
  const ParameterSpec cube{"p", {5, 2, 3, 4}, DType::f32};
  const StateSize size = state_size<AdafactorRule>({&cube, 1});
  CHECK(size.entries[0].shape == Shape{5, 2, 3});
  CHECK(size.entries[1].shape == Shape{5, 2, 4});
}

TEST_CASE("adafactor: the memory grows with t: the first step forgets the zeros of the start") {
  // No bias correction is needed: b2 = 1 - t^-0.8 is 0 at first, then 0.42565, 0.58477, ...
  const Tensor p = scalar(0.0);
  Adafactor optimizer({{"p", p}}, at_rate(1.0));
  set_gradient(p, 1.0);
  optimizer.step();
  CHECK(optimizer.state("p").exp_avg_sq.item() == doctest::Approx(1.0).epsilon(1e-14));
  set_gradient(p, 3.0);
  optimizer.step();
  // 2^-0.8 = 0.5743491774985175: v = 0.4256508 * 1 + 0.5743492 * 9 = 1 + 8 * 0.5743492
  CHECK(optimizer.state("p").exp_avg_sq.item() == doctest::Approx(5.59479341998814).epsilon(1e-14));
}

TEST_CASE("adafactor: the relative step is 0.01 for ten thousand steps, then 1 / sqrt(t)") {
  // A gradient that stays makes U = 1, so that a scalar moves by the rate.
  const auto walked = moves(std::vector<double>(40000, 1.0), {.scale_parameter = false});
  CHECK(walked[0] == doctest::Approx(0.01).epsilon(1e-12));
  CHECK(walked[9999] == doctest::Approx(0.01).epsilon(1e-9));
  CHECK(walked[22499] == doctest::Approx(1.0 / 150).epsilon(1e-9));
  CHECK(walked[39999] == doctest::Approx(0.005).epsilon(1e-9));
}

TEST_CASE("adafactor: warmup_init starts the relative step at a millionth per step") {
  const auto walked =
      moves(std::vector<double>(3, 1.0), {.scale_parameter = false, .warmup_init = true});
  check_near(walked, {1e-6, 2e-6, 3e-6}, 1e-9);
}

TEST_CASE("adafactor: scale_parameter makes steps relative to the parameter, of 0.001 at least") {
  check_near(moves({1.0}, {.lr = 0.1, .relative_step = false}, 50.0), {0.1 * 50.0});
  check_near(moves({1.0}, {.lr = 0.1, .relative_step = false}, 1e-5), {0.1 * 0.001});
  check_near(moves({1.0}, {.lr = 0.1, .eps2 = 0.5, .relative_step = false}), {0.1 * 0.5});
  // RMS(1, 7) = sqrt((1 + 49) / 2) = 5
  const Tensor p = parameter(std::vector<double>{1.0, 7.0}, {2});
  Adafactor optimizer({{"p", p}}, {.lr = 0.1, .relative_step = false});
  set_gradient(p, 3.0);
  optimizer.step();
  CHECK(optimizer.state("p").rms == doctest::Approx(5.0).epsilon(1e-14));
  check_near(p.to_vector<double>(), {0.5, 6.5});
}

TEST_CASE("adafactor: the RMS of an update is clipped, so that a sudden gradient does no harm") {
  // v = 1, then 1 + 99 * 0.5743492 = 57.86057: U = 10 / sqrt(v) = 1.31465, too long by its excess.
  check_near(moves({1.0, 10.0}, at_rate(1.0)), {1.0, 1.0});
  AdafactorRule::Options options = at_rate(1.0);
  options.clip_threshold = 2.0;
  check_near(moves({1.0, 10.0}, options),
             {1.0, 10.0 / std::sqrt(1.0 + 99.0 * std::pow(2.0, -0.8))});
  options.clip_threshold = 0.5;
  check_near(moves({1.0, 10.0}, options), {0.5, 0.5});
}

TEST_CASE("adafactor: beta1 averages the updates as they were scaled, without bias correction") {
  // U = 1: m = 0.1, 0.19, 0.271. Then a rate of 0 still moves p, by 0.9 * 0.271, since the average
  // holds the steps of earlier rates.
  const Tensor p = scalar(0.0);
  AdafactorRule::Options options = at_rate(1.0);
  options.beta1 = 0.9;
  Adafactor optimizer({{"p", p}}, options);
  for (const double expected : {-0.1, -0.29, -0.561}) {
    set_gradient(p, 1.0);
    optimizer.step();
    CHECK(p.item() == doctest::Approx(expected).epsilon(1e-13));
  }
  optimizer.step(0.0);
  CHECK(p.item() == doctest::Approx(-0.561 - 0.2439).epsilon(1e-13));
  CHECK(optimizer.state("p").exp_avg.item() == doctest::Approx(0.2439).epsilon(1e-13));
}

TEST_CASE("adafactor: decay takes weight_decay times the rate, which holds the parameter's scale") {
  AdafactorRule::Options options = {.lr = 0.1, .weight_decay = 0.5, .relative_step = false};
  // a = 0.1 * 4: decay 0.5 * 0.4 * 4, update 0.4
  check_near(moves({1.0}, options, 4.0), {0.8 + 0.4});
  options.scale_parameter = false;  // a = 0.1
  check_near(moves({1.0}, options, 4.0), {0.2 + 0.1});
}

TEST_CASE("adafactor: zeros move nothing: not alone, not in a row, not even without eps1") {
  for (const double eps1 : {1e-30, 0.0}) {
    AdafactorRule::Options options = at_rate(1.0);
    options.eps1 = eps1;
    CHECK(one_update(std::vector<float>(6), {2, 3}, options) == std::vector<double>(6));
    CHECK(one_update(std::vector<float>(3), {3}, options) == std::vector<double>(3));
    const auto u = one_update(std::vector<float>{0, 0, 0, 0, 2, 2}, {2, 3}, options);
    for (const size_t i : {0, 1, 2, 3})
      CHECK(u[i] == 0.0);
    CHECK(u[4] < -0.5);
  }
}

TEST_CASE("adafactor: a NaN in the gradient shows in every weight that shares its averages") {
  const auto u = one_update(std::vector<float>{1, NAN, 1, 1, 1, 1}, {2, 3});
  for (const double x : u)
    CHECK(std::isnan(x));
}

TEST_CASE("adafactor: half-precision weights have f32 state and are rounded once per step") {
  const auto check_dtype = [](DType dtype, const Shape& shape) {
    const Tensor half = convert(Tensor::from(noise(shape.numel(), 3), shape), dtype);
    Tensor(half).set_requires_grad();
    const Tensor exact = convert(half, DType::f32);
    const AdafactorRule::Options options = {.beta1 = 0.9};
    Adafactor optimizer({{"p", half}}, options), in_f32({{"p", exact}}, options);
    const Tensor gradient = convert(Tensor::from(noise(shape.numel(), 5), shape), dtype);
    Tensor(half).set_grad(gradient);
    Tensor(exact).set_grad(convert(gradient, DType::f32));
    optimizer.step();
    in_f32.step();
    CHECK(optimizer.state("p").exp_avg.dtype() == DType::f32);
    CHECK(optimizer.state("p").exp_avg.to_vector<float>() ==
          in_f32.state("p").exp_avg.to_vector<float>());
    CHECK(half.to_vector<float>() == convert(exact, dtype).to_vector<float>());
  };
  for (const DType dtype : {DType::bf16, DType::f16}) {
    check_dtype(dtype, {100});
    check_dtype(dtype, {3, 20, 17});
  }
}

TEST_CASE("adafactor: a rate that is given is never ignored: what contradicts it is refused") {
  const auto error = [](AdafactorRule::Options options) {
    return error_of([&] { Adafactor({{"p", scalar(1.0)}}, options); });
  };
  CHECK(error({.lr = 1e-3}) ==
        "adafactor: lr is 0.001, but relative_step finds the rate itself; leave lr out, or set "
        "relative_step to false");
  CHECK(error({.relative_step = false}) ==
        "adafactor: there is no rate: lr is left out and relative_step is false; give one of them");
  CHECK(error({.lr = 1e-3, .relative_step = false, .warmup_init = true}) ==
        "adafactor: warmup_init is a start of relative_step, which is false");
  // Also the rate of a schedule, and of a group.
  const Tensor p = scalar(1.0);
  Adafactor optimizer({{"p", p}});
  set_gradient(p, 1.0);
  CHECK(error_of([&] { optimizer.step(0.5); }) ==
        "adafactor: lr is 0.5, but relative_step finds the rate itself; leave lr out, or set "
        "relative_step to false");
  CHECK(p.item() == 1.0);
  CHECK(error_of([] {
          Adafactor({ParameterGroup{.parameters = {{"p", scalar(1.0)}}, .lr = 0.25}});
        }).starts_with("adafactor: lr is 0.25, but relative_step"));
}

TEST_CASE("adafactor: options that make no sense are refused by name") {
  const auto error = [](AdafactorRule::Options options) {
    return error_of([&] { Adafactor({{"p", scalar(1.0)}}, options); });
  };
  const double nan = std::nan("");
  CHECK(error({.lr = -1e-3, .relative_step = false}) ==
        "adafactor: lr is -0.001, must be finite and not negative");
  CHECK(error({.eps1 = -1.0}) == "adafactor: eps1 is -1, must be finite and not negative");
  CHECK(error({.eps2 = nan}) == "adafactor: eps2 is nan, must be finite and not negative");
  CHECK(error({.clip_threshold = 0.0}) ==
        "adafactor: clip_threshold is 0, must be finite and positive");
  CHECK(error({.decay_rate = 0.8}) ==
        "adafactor: decay_rate is 0.8, must be finite and not positive");
  CHECK(error({.beta1 = 1.0}) == "adafactor: beta1 is 1, must be at least 0 and less than 1");
  CHECK(error({.weight_decay = INFINITY}) ==
        "adafactor: weight_decay is inf, must be finite and not negative");
}
