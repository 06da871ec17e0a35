#include <cmath>
#include <limits>

#include <doctest/doctest.h>

#include "optim/adafactor.h"
#include "optim/adafactor_torch.h"
#include "optim/adamw.h"
#include "optim/clip.h"
#include "optim/make_optimizer.h"
#include "tests/optim/optim_testing.h"

using namespace minim;
using namespace minim::optim;
using namespace minim::test;

// What a step is told beside the gradients: a rate, a scale, and what to do where they are no
// numbers.

namespace {

constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();
constexpr float infinity = std::numeric_limits<float>::infinity();

struct TwoParameters {
  TwoParameters() { give(0.5f); }
  // The same gradient everywhere, but for element [0, 2] of w.
  void give(float element) {
    Tensor(w).set_grad(Tensor::from({0.5f, 0.5f, element, 0.5f}, {1, 4}));
    set_gradient(b, 0.5);
  }
  NamedTensors all() const { return {{"b", b}, {"w", w}}; }

  Tensor b = parameter(std::vector<float>{1.0f}, {1});
  Tensor w = parameter(std::vector<float>{1.0f, 2.0f, 3.0f, 4.0f}, {1, 4});
};

}  // namespace

TEST_CASE("step: a rate and a scale may be given each without the other") {
  const auto result = [](const StepOptions& options) {
    const Tensor p = scalar(1.0);
    AdamW optimizer({{"p", p}}, {.lr = 0.25, .eps = 1.0, .weight_decay = 0});
    set_gradient(p, 3.0);
    CHECK(optimizer.step(options));
    return p.item();
  };
  // The first step of AdamW is lr * g / (|g| + eps).
  CHECK(result({}) == doctest::Approx(1 - 0.25 * 3 / 4));
  CHECK(result({.lr = 0.5}) == doctest::Approx(1 - 0.5 * 3 / 4));
  CHECK(result({.gradient_scale = 1.0 / 3}) == doctest::Approx(1 - 0.25 * 1 / 2));
  CHECK(result({.lr = 0.5, .gradient_scale = 1.0 / 3}) == doctest::Approx(1 - 0.5 * 1 / 2));
}

TEST_CASE("step: by itself a step asks nothing of its gradients, as PyTorch's does not") {
  const TwoParameters p;
  AdamW optimizer(p.all());
  CHECK(optimizer.on_non_finite() == OnNonFinite::apply);
  TwoParameters(p).give(not_a_number);
  CHECK(optimizer.step());
  CHECK(std::isnan(p.w.values<float>()[2]));
  CHECK(std::isfinite(p.w.values<float>()[1]));
}

TEST_CASE("step: told to refuse, it names the first parameter and element, and changes nothing") {
  TwoParameters p;
  AdamW optimizer(p.all());
  optimizer.set_on_non_finite(OnNonFinite::refuse);
  CHECK(optimizer.step());
  const auto before = p.w.to_vector<float>();
  p.give(-infinity);
  CHECK(error_of([&] { optimizer.step(); }) ==
        "adamw: the gradient of w holds 1 infinity among 4 elements, the first of them -inf at "
        "[0, 2]; OnNonFinite::skip would leave such steps out");
  p.give(not_a_number);
  CHECK(error_of([&] { optimizer.step(0.1, 0.5); }) ==
        "adamw: the gradient of w holds 1 NaN among 4 elements, the first of them nan at [0, 2]; "
        "OnNonFinite::skip would leave such steps out");
  CHECK(p.w.to_vector<float>() == before);
  CHECK(optimizer.state("b").step == 1);
  CHECK(optimizer.skipped_steps() == 0);
}

TEST_CASE("step: told to skip, every rule goes on as if the step had never been asked for") {
  for (const std::string_view name : optimizer_names()) {
    CAPTURE(name);
    const auto train = [&](bool with_bad_steps) {
      TwoParameters p;
      std::vector<ParameterGroup> groups(1);
      groups[0].parameters = p.all();
      const auto optimizer = make_optimizer(name, groups, {.learning_rate = 0.1});
      optimizer->set_on_non_finite(OnNonFinite::skip);
      int64_t skipped = 0;
      for (int step = 0; step < 4; ++step) {
        if (with_bad_steps && step % 2 == 0) {  // the first, too: nothing has a state yet
          p.give(step == 0 ? not_a_number : infinity);
          CHECK_FALSE(optimizer->step(0.1));
          CHECK(optimizer->skipped_steps() == ++skipped);
          if (step == 0) CHECK(optimizer->state_dict().empty());
        }
        p.give(0.5f - 0.2f * float(step));
        CHECK(optimizer->step(0.1));
      }
      return std::pair(p.w.to_vector<float>(), p.b.to_vector<float>());
    };
    CHECK(train(true) == train(false));
  }
}

TEST_CASE("step: a norm that is known from clipping decides without another look") {
  TwoParameters p;
  AdamW optimizer(p.all());
  optimizer.set_on_non_finite(OnNonFinite::skip);
  p.give(not_a_number);
  const double norm = gradient_norm(p.all());
  CHECK_FALSE(optimizer.step({.gradient_norm = norm}));
  // The gradients are not read: what is said of them is believed.
  p.give(0.5f);
  CHECK_FALSE(optimizer.step({.gradient_norm = norm}));
  p.give(not_a_number);
  CHECK(optimizer.step({.gradient_norm = 1.0}));
  CHECK(optimizer.skipped_steps() == 2);
  p.give(0.5f);
  optimizer.set_on_non_finite(OnNonFinite::refuse);
  CHECK(error_of([&] { optimizer.step({.gradient_norm = std::nan("")}); }) ==
        "adamw: the norm of all gradients is nan, must be finite");
}

TEST_CASE("step: the last rate is the one given, with each group's ratio; none before a step") {
  const Tensor a = scalar(1.0), b = scalar(1.0);
  AdamW optimizer(
      {ParameterGroup{.parameters = {{"a", a}}}, ParameterGroup{.parameters = {{"b", b}}, .lr = 1}},
      {.lr = 0.5});
  CHECK_FALSE(optimizer.finds_rate());
  CHECK_FALSE(optimizer.last_lr(0).has_value());
  set_gradient(a, 1.0);
  optimizer.step(0.25);
  CHECK(optimizer.last_lr(0) == 0.25);
  CHECK_FALSE(optimizer.last_lr(1).has_value());  // b had no gradient
  set_gradient(b, 1.0);
  optimizer.step();
  CHECK(optimizer.last_lr(0) == 0.5);
  CHECK(optimizer.last_lr(1) == 1.0);
}

TEST_CASE("step: Adafactor's relative step takes a scale without a rate, and tells what it found") {
  // Steps are 1e-6 * t times RMS(p), of the first parameter: 4, then a little less.
  const Tensor p = parameter(std::vector<double>{4.0, -4.0}, {2}), q = scalar(0.0);
  Adafactor optimizer({{"p", p}, {"q", q}}, {.warmup_init = true});
  CHECK(optimizer.finds_rate());
  for (int step = 1; step <= 3; ++step) {
    set_gradient(p, 0.5);
    set_gradient(q, 0.5);
    const auto x = p.to_vector<double>();
    const double rms = std::sqrt((x[0] * x[0] + x[1] * x[1]) / 2);
    CHECK(optimizer.step({.gradient_scale = 0.1}));
    CHECK(*optimizer.last_lr(0) == doctest::Approx(1e-6 * step * rms).epsilon(1e-14));
  }
  CHECK(error_of([&] { optimizer.step(0.1); }) ==
        "adafactor: lr is 0.1, but relative_step finds the rate itself; leave lr out, or set "
        "relative_step to false");
  CHECK_FALSE(Adafactor({{"p", p}}, {.lr = 0.1, .relative_step = false}).finds_rate());
  CHECK_FALSE(AdafactorTorch({{"p", p}}).finds_rate());  // its lr bounds the rate that it finds
}

TEST_CASE("step: by name, the relative step is had with a learning rate of 0 alone") {
  const auto make = [](double rate) {
    const Tensor p = scalar(1.0);
    std::vector<ParameterGroup> groups(1);
    groups[0].parameters = {{"p", p}};
    const auto optimizer = make_optimizer(
        "adafactor", groups, {.learning_rate = rate, .optim_args = "relative_step=True"});
    set_gradient(p, 1.0);
    optimizer->step();
    return *optimizer->last_lr(0);
  };
  CHECK(make(0) == 0.01);
  CHECK(error_of([&] { make(5e-5); }) ==
        "optim_args: adafactor with relative_step finds the rate itself, but learning_rate is "
        "5e-05; set learning_rate to 0, or relative_step to False");
}
