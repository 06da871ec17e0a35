#include <cmath>
#include <limits>

#include <doctest/doctest.h>

#include "optim/adam.h"
#include "optim/adam8bit.h"
#include "optim/adamw.h"
#include "optim/code_map.h"
#include "tests/optim/optim_testing.h"

using namespace minim;
using namespace minim::optim;
using namespace minim::test;

// Adam with one byte per moment: AdamW's step, and what the bytes do to it. Parameters here are
// small, so min_8bit_size is set to 1.

namespace {

using Floats = std::vector<float>;

Tensor zeros(int64_t n) {
  return parameter(Floats(size_t(n), 0.0f), {n});
}

// The paths of a parameter that starts at zero, one per step of `gradient(step)`.
template <class Optimizer, class Options, class Gradient>
std::vector<Floats> path(const Options& options, int64_t n, int steps, const Gradient& gradient) {
  const Tensor p = zeros(n);
  Optimizer optimizer({{"p", p}}, options);
  std::vector<Floats> after = {Floats(size_t(n), 0.0f)};
  for (int step = 0; step < steps; ++step) {
    Tensor(p).set_grad(Tensor::from(Floats(gradient(step)), {n}));
    optimizer.step();
    after.push_back(p.to_vector<float>());
  }
  return after;
}

// The largest step that any element took, over the rate.
double longest_step(const std::vector<Floats>& path, double lr) {
  double longest = 0;
  for (size_t step = 1; step < path.size(); ++step)
    for (size_t i = 0; i < path[step].size(); ++i)
      longest = std::max(longest, std::abs(double(path[step][i]) - double(path[step - 1][i])) / lr);
  return longest;
}

}  // namespace

TEST_CASE("adam8bit: one step of two weights, by hand") {
  const Tensor p = parameter(Floats{1, 1}, {2});
  Adam8bit optimizer({{"p", p}}, {.lr = 1e-3, .min_8bit_size = 1});
  Tensor(p).set_grad(Tensor::from({1.0f, 0.5f}, {2}));
  optimizer.step();
  // averages  m = 0.1 * g = 0.1, 0.05         v = 0.001 * g^2 = 0.001, 0.00025
  // update    p = 1 - 0.001 * g / (|g| + eps) = 0.999, 0.999, as in AdamW
  CHECK(p.values<float>()[0] == doctest::Approx(0.999).epsilon(1e-6));
  CHECK(p.values<float>()[1] == doctest::Approx(0.999).epsilon(1e-6));
  // codes     m / 0.1   = 1, 0.5   -> 255 and 219, which is 0.50078125
  //           v / 0.001 = 1, 0.25  -> 255 and 148, which is 0.248828125
  const auto& state = optimizer.state("p");
  CHECK(state.exp_avg_absmax.item() == doctest::Approx(0.1).epsilon(1e-6));
  CHECK(state.exp_avg_sq_absmax.item() == doctest::Approx(0.001).epsilon(1e-6));
  CHECK(state.exp_avg.to_vector<uint8_t>() == std::vector<uint8_t>{255, 219});
  CHECK(state.exp_avg_sq.to_vector<uint8_t>() == std::vector<uint8_t>{255, 148});
  CHECK(state.step == 1);

  // The second step starts from what the codes say: m = 0.050078125, v = 0.000248828125.
  Tensor(p).set_grad(Tensor::zeros({2}));
  optimizer.step();
  const double m = 0.9 * 0.1 * 0.50078125, v = 0.999 * 0.001 * 0.248828125;
  const double step = 1e-3 / (1 - 0.81) * m / (std::sqrt(v / (1 - 0.999 * 0.999)) + 1e-8);
  CHECK(0.999 - p.values<float>()[1] == doctest::Approx(step).epsilon(1e-3));
}

TEST_CASE("adam8bit: the step is taken with the moments before they are coded") {
  // So the first steps of AdamW and of its 8-bit form are the same; the next are not quite.
  const auto gradient = [](int step) { return noise(1000, step + 3); };
  const auto exact = path<AdamW>(AdamWRule::Options{}, 1000, 2, gradient);
  const auto coded = path<AdamW8bit>(AdamW8bitRule::Options{.min_8bit_size = 1}, 1000, 2, gradient);
  double first = 0, second = 0;
  for (size_t i = 0; i < 1000; ++i) {
    first = std::max(first, std::abs(double(coded[1][i]) - double(exact[1][i])));
    second = std::max(second, std::abs(double(coded[2][i]) - double(exact[2][i])));
  }
  CHECK(first < 1e-9);  // a few ulp of steps of 1e-3
  CHECK(second > 1e-6);
}

TEST_CASE("adam8bit: weight decay is decoupled under both names; their defaults differ") {
  CHECK(Adam8bitRule::Options{}.weight_decay == 0.0);
  CHECK(AdamW8bitRule::Options{}.weight_decay == 0.01);
  const auto decayed = [](auto optimizer, const Tensor& p) {
    set_gradient(p, 0.0);
    optimizer.step();
    return p.item();
  };
  const Tensor p = parameter(Floats{2}, {1}), q = parameter(Floats{2}, {1});
  // 2 * (1 - 0.1 * 0.5); the gradient is zero and so are the moments.
  CHECK(decayed(Adam8bit({{"p", p}}, {.lr = 0.1, .weight_decay = 0.5, .min_8bit_size = 1}), p) ==
        doctest::Approx(1.9));
  CHECK(decayed(AdamW8bit({{"q", q}}, {.lr = 0.1, .weight_decay = 0.5, .min_8bit_size = 1}), q) ==
        doctest::Approx(1.9));
}

TEST_CASE("adam8bit: small parameters and those chosen by name keep their moments in f32") {
  const auto bits = [](int64_t n, const std::string& name, const std::string& keep_f32) {
    const Tensor p = zeros(n);
    AdamW8bit optimizer({{name, p}}, {.keep_f32 = keep_f32});
    set_gradient(p, 1.0);
    optimizer.step();
    return 8 * size_of(optimizer.state(name).exp_avg.dtype());
  };
  CHECK(bits(4095, "w", "") == 32);
  CHECK(bits(4096, "w", "") == 8);
  CHECK(bits(4096, "embeddings.word_embeddings.weight", "embeddings") == 32);
  CHECK(bits(4096, "layer.0.lin1.weight", "embeddings") == 8);
  CHECK(bits(4096, "layer.0.lin1.weight", "embeddings|layer.0.") == 32);
  CHECK(bits(4096, "layer.1.lin1.weight", "embeddings||layer.0.") == 8);
}

TEST_CASE("adam8bit: moments in f32 are AdamW's, bit for bit") {
  const auto gradient = [](int step) { return noise(1000, step + 3); };
  CHECK(path<AdamW>(AdamWRule::Options{.lr = 0.01}, 1000, 5, gradient) ==
        path<AdamW8bit>(AdamW8bitRule::Options{.lr = 0.01}, 1000, 5, gradient));
}

TEST_CASE("adam8bit: where a second moment rounds to zero a step explodes; ours has a floor") {
  // One weight has gradients of 1, its neighbour of 3e-4 for five steps and 0 from then on. The
  // neighbour's v is 9e-8 of the largest, below half of the lowest code above zero, 3.25e-7: it
  // rounds to 0. Its m is 3e-4 of the largest and does not. With a zero gradient the step is
  // lr * m / (0 + eps).
  const auto gradient = [](int step) { return Floats{1, step < 5 ? 3e-4f : 0.0f}; };
  const auto longest = [&](const std::string& behaviour) {
    return longest_step(
        path<Adam8bit>(
            Adam8bitRule::Options{.lr = 1e-3, .min_8bit_size = 1, .behaviour = behaviour}, 2, 30,
            gradient),
        1e-3);
  };
  CHECK(longest("bitsandbytes") > 10000);
  CHECK(longest("bitsandbytes_floor") < 1.001);
  CHECK(longest("minim") < 1.001);
  CHECK(longest_step(path<Adam>(AdamRule::Options{}, 2, 30, gradient), 1e-3) < 1.001);
}

TEST_CASE("adam8bit: no step is longer than a few times the rate, however uneven the gradients") {
  // In f32 the bound is (1 - b1) / sqrt(1 - b2) = 3.16. Here rows of 64 are active now and then, as
  // words of an embedding are, and scales differ by up to 1e12.
  const auto gradient = [](int step) {
    const Floats values = noise(4096, step + 2);
    Floats sparse(4096, 0.0f);
    for (size_t i = 0; i < 4096; ++i)
      if ((i / 64 * 7 + size_t(step)) % (1 + i / 256) == 0)
        sparse[i] = values[i] * float(std::pow(10.0, double(i % 13) - 6));
    return sparse;
  };
  const auto steps =
      path<Adam8bit>(Adam8bitRule::Options{.lr = 1e-3, .min_8bit_size = 1}, 4096, 100, gradient);
  CHECK(longest_step(steps, 1e-3) < 5);
}

TEST_CASE("adam8bit: weights whose gradient is always zero stay where they are") {
  const auto gradient = [](int step) {
    Floats values = noise(600, step + 2);
    for (size_t i = 0; i < 600; i += 3)
      values[i] = 0;
    return values;
  };
  const auto steps = path<Adam8bit>(Adam8bitRule::Options{.min_8bit_size = 1}, 600, 20, gradient);
  for (size_t i = 0; i < 600; i += 3)
    CHECK(steps.back()[i] == 0.0f);
}

TEST_CASE("adam8bit: linear codes stop weights with small gradients, dynamic codes do not") {
  // Under constant gradients Adam takes steps of the rate, whatever the gradient's size: 20 * lr in
  // all. One of the weights has a hundredth of the other's gradient, so its v is 1e-4 of the
  // block's largest: less than the lowest linear code, 1/255, which is taken for it. sqrt(1e-4 *
  // 255) = 0.16 of the way is left. FP8, which is finer near zero, fares as the dynamic map does.
  const auto moved = [](const std::string& map) {
    const auto steps = path<Adam8bit>(
        Adam8bitRule::Options{.lr = 0.01, .min_8bit_size = 1, .code_map = map}, 2, 20, [](int) {
          return Floats{1, 0.01f};
        });
    CHECK(steps.back()[0] == doctest::Approx(-0.2).epsilon(0.001));
    return double(-steps.back()[1]) / 0.2;
  };
  CHECK(moved("dynamic") == doctest::Approx(1.0).epsilon(0.1));
  CHECK(moved("fp8_e4m3") == doctest::Approx(1.0).epsilon(0.1));
  CHECK(moved("fp8_e5m2") == doctest::Approx(1.0).epsilon(0.2));
  CHECK(moved("linear") < 0.25);
}

TEST_CASE("adam8bit: without eps, gradients of any scale give the same steps and the same codes") {
  // Powers of two scale m, sqrt(v) and both scales exactly; codes are relative to the scales.
  const auto run = [](float scale) {
    return path<Adam8bit>(Adam8bitRule::Options{.eps = 0, .min_8bit_size = 1}, 600, 5,
                          [scale](int step) {
                            Floats values = noise(600, step + 2);
                            for (float& value : values)
                              value *= scale;
                            return values;
                          });
  };
  const auto expected = run(1);
  CHECK(run(0x1p-20f) == expected);
  CHECK(run(0x1p20f) == expected);
}

TEST_CASE("adam8bit: a large gradient disturbs its own block, not the next") {
  const auto run = [](float outlier) {
    return path<Adam8bit>(Adam8bitRule::Options{.min_8bit_size = 1}, 512, 10,
                          [&](int step) {
                            Floats values = noise(512, step + 2);
                            values[0] = outlier;
                            return values;
                          })
        .back();
  };
  const Floats calm = run(1.0f), wild = run(1e5f);
  CHECK(Floats(calm.begin() + 256, calm.end()) == Floats(wild.begin() + 256, wild.end()));
  CHECK(Floats(calm.begin() + 1, calm.begin() + 256) !=
        Floats(wild.begin() + 1, wild.begin() + 256));
}

TEST_CASE("adam8bit: a gradient that is not finite is left out alone, and counted") {
  const auto run = [](const std::string& behaviour, float bad) {
    const Tensor p = parameter(noise(600, 2), {600});
    Adam8bit optimizer({{"p", p}}, {.lr = 0.01, .min_8bit_size = 1, .behaviour = behaviour});
    for (int step = 0; step < 3; ++step) {
      Floats values = noise(600, step + 3);
      if (step == 1) values[5] = bad;
      Tensor(p).set_grad(Tensor::from(values, {600}));
      optimizer.step();
    }
    return std::pair(p.to_vector<float>(), optimizer.state("p").skipped);
  };
  const auto [clean, none] = run("minim", 0.5f);
  CHECK(none == 0);
  // 1e19 is finite, but its square is not, and would be the scale of the whole block.
  for (const float bad : {NAN, INFINITY, -INFINITY, 1e19f}) {
    const auto [values, skipped] = run("minim", bad);
    CHECK(skipped == 1);
    for (const float value : values)
      CHECK(std::isfinite(value));
    CHECK(Floats(values.begin() + 256, values.end()) == Floats(clean.begin() + 256, clean.end()));
  }
  // bitsandbytes loses the block, here for good.
  const auto [values, skipped] = run("bitsandbytes", INFINITY);
  CHECK(skipped == 0);
  for (size_t i = 0; i < 256; ++i)
    CHECK(std::isnan(values[i]));
  CHECK(std::isfinite(values[256]));
}

TEST_CASE("adam8bit: f64 and half-precision parameters are updated in their own type") {
  for (const DType dtype : {DType::f64, DType::f16, DType::bf16}) {
    Tensor p = Tensor::full({300}, 1.0, dtype);
    p.set_requires_grad();
    Adam8bit optimizer({{"p", p}}, {.lr = 0.125, .min_8bit_size = 1});
    set_gradient(p, 0.5);
    optimizer.step();
    for (const double value : p.to_vector<double>())
      CHECK(value == doctest::Approx(0.875).epsilon(dtype == DType::f64 ? 1e-6 : 1e-2));
    CHECK(optimizer.state("p").exp_avg.dtype() == DType::u8);
  }
}

TEST_CASE("adam8bit: finds the bottom of a bowl as AdamW does") {
  // Sum of c * (p - target)^2 / 2 with c from 0.01 to 100.
  const int64_t n = 512;
  const Floats target = noise(n, 4);
  for (const int64_t block : {64, 256, 4096}) {
    const Tensor p = zeros(n);
    Adam8bit optimizer({{"p", p}}, {.block_size = block, .min_8bit_size = 1});
    for (int step = 0; step < 400; ++step) {
      Floats gradient(size_t(n), 0.0f);
      for (size_t i = 0; i < size_t(n); ++i)
        gradient[i] = float(std::pow(10.0, double(i % 5) - 2)) * (p.values<float>()[i] - target[i]);
      Tensor(p).set_grad(Tensor::from(gradient, {n}));
      optimizer.step(0.05 * (1.0 - step / 400.0));
    }
    double worst = 0;
    for (size_t i = 0; i < size_t(n); ++i)
      worst = std::max(worst, std::abs(double(p.values<float>()[i]) - double(target[i])));
    CHECK(worst < 0.02);
  }
}
