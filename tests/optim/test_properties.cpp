#include <algorithm>

#include <doctest/doctest.h>

#include "core/parallel.h"
#include "optim/adamw.h"
#include "tests/optim/optim_testing.h"

using namespace minim;
using namespace minim::optim;
using namespace minim::test;

// What must hold for any gradients.

namespace {

constexpr int64_t n = 100003;  // several chunks of the launcher, the last one odd

Tensor start(int64_t first = 0, int64_t count = n) {
  const std::vector<float> all = noise(n, 3);
  return parameter(std::vector<float>(all.begin() + first, all.begin() + first + count), {count});
}

Tensor gradient(int step, int64_t first = 0, int64_t count = n, float scale = 1.0f) {
  std::vector<float> all = noise(n, 11 + step);
  for (float& value : all)
    value *= scale;
  return Tensor::from(std::vector<float>(all.begin() + first, all.begin() + first + count),
                      {count});
}

std::vector<float> trained(float gradient_scale = 1.0f, AdamWRule::Options options = {}) {
  const Tensor p = start();
  AdamW optimizer({{"p", p}}, options);
  for (int step = 0; step < 4; ++step) {
    Tensor(p).set_grad(gradient(step, 0, n, gradient_scale));
    optimizer.step();
  }
  return p.to_vector<float>();
}

}  // namespace

TEST_CASE("adamw property: without eps, gradients of any scale give the same steps") {
  // Powers of two scale m and sqrt(v) exactly, so the results are equal bit for bit.
  const AdamWRule::Options options = {.eps = 0.0};
  const auto expected = trained(1.0f, options);
  CHECK(trained(0x1p-20f, options) == expected);
  CHECK(trained(0x1p20f, options) == expected);
}

TEST_CASE("adamw property: the number of threads changes no bit") {
  const int threads = thread_count();
  set_thread_count(1);
  const auto expected = trained();
  set_thread_count(3);
  CHECK(trained() == expected);
  set_thread_count(threads);
}

TEST_CASE("adamw property: a weight's step depends on its own gradients alone") {
  // One tensor, or the same elements cut into three parameters in two groups.
  const auto expected = trained();
  const int64_t cuts[] = {0, 12345, 70001, n};
  std::vector<Tensor> parts;
  for (int i = 0; i < 3; ++i)
    parts.push_back(start(cuts[i], cuts[i + 1] - cuts[i]));
  AdamW optimizer({ParameterGroup{.parameters = {{"c", parts[2]}, {"a", parts[0]}}},
                   ParameterGroup{.parameters = {{"b", parts[1]}}}});
  for (int step = 0; step < 4; ++step) {
    for (int i = 0; i < 3; ++i)
      parts[size_t(i)].set_grad(gradient(step, cuts[i], cuts[i + 1] - cuts[i]));
    optimizer.step();
  }
  std::vector<float> joined;
  for (const Tensor& part : parts)
    for (const float value : part.to_vector<float>())
      joined.push_back(value);
  CHECK(joined == expected);
}

TEST_CASE("adamw property: no step is longer than lr * max(1, (1 - b1) / sqrt(1 - b2))") {
  // Kingma & Ba, 2015, section 2.1; the bound is reached by one gradient after many zeros.
  const Tensor p = scalar(0.0);
  AdamW optimizer({{"p", p}}, {.lr = 1.0, .weight_decay = 0.0});
  const double bound = (1 - 0.9) / std::sqrt(1 - 0.999);
  double longest = 0;
  for (int step = 0; step < 3000; ++step) {
    const double before = p.item();
    set_gradient(p, step == 2900 ? 1e3 : 0.0);
    optimizer.step();
    longest = std::max(longest, std::abs(p.item() - before));
  }
  CHECK(longest <= bound);
  CHECK(longest > 0.9 * bound);
}

TEST_CASE("adamw converges on an ill-conditioned bowl, where the gradient alone would crawl") {
  // f(x, y) = (x^2 + 10000 y^2) / 2, from (1, 1), with a rate that falls to 0.
  const Tensor p = parameter(std::vector<double>{1.0, 1.0}, {2});
  AdamW optimizer({{"p", p}}, {.lr = 0.05, .weight_decay = 0.0});
  for (int step = 0; step < 400; ++step) {
    const auto x = p.values<double>();
    Tensor(p).set_grad(Tensor::from({x[0], 10000.0 * x[1]}, {2}));
    optimizer.step(0.05 * (1.0 - step / 400.0));
  }
  CHECK(std::abs(p.values<double>()[0]) < 1e-3);
  CHECK(std::abs(p.values<double>()[1]) < 1e-3);
}
