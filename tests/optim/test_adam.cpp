#include <doctest/doctest.h>

#include "optim/adam.h"
#include "tests/optim/optim_testing.h"

using namespace minim;
using namespace minim::optim;
using namespace minim::test;

TEST_CASE("adam: without decay it is AdamW without decay, bit for bit") {
  for (const bool amsgrad : {false, true}) {
    const Tensor a = parameter(noise(50, 2), {50}), b = parameter(noise(50, 2), {50});
    Adam adam({{"p", a}}, {.amsgrad = amsgrad});
    AdamW adamw({{"p", b}}, {.weight_decay = 0.0, .amsgrad = amsgrad});
    for (int step = 0; step < 5; ++step) {
      Tensor(a).set_grad(Tensor::from(noise(50, 5 + step), {50}));
      Tensor(b).set_grad(Tensor::from(noise(50, 5 + step), {50}));
      adam.step();
      adamw.step();
      CHECK(a.to_vector<float>() == b.to_vector<float>());
    }
  }
}

TEST_CASE("adam: L2 decay is normalised away with the gradient, where AdamW's is not") {
  // The first step of Adam is lr whatever the size of g + decay * p; AdamW also takes lr * decay.
  for (const double decay : {0.01, 10.0}) {
    const Tensor p = scalar(2.0), q = scalar(2.0);
    Adam adam({{"p", p}}, {.lr = 0.01, .eps = 0.0, .weight_decay = decay});
    AdamW adamw({{"q", q}}, {.lr = 0.01, .eps = 0.0, .weight_decay = decay});
    set_gradient(p, 1.0);
    set_gradient(q, 1.0);
    adam.step();
    adamw.step();
    CHECK(p.item() == doctest::Approx(2.0 - 0.01).epsilon(1e-12));
    CHECK(q.item() == doctest::Approx(2.0 - 0.01 - 0.01 * decay * 2.0).epsilon(1e-12));
  }
}

TEST_CASE("adam: the decay of a step is that of a gradient with decay * p added by hand") {
  const Tensor p = scalar(2.0), q = scalar(2.0);
  Adam decayed({{"p", p}}, {.weight_decay = 0.25, .maximize = true});
  Adam by_hand({{"q", q}}, {.maximize = true});
  for (const double gradient : {0.5, -0.25, 1.0}) {
    set_gradient(p, gradient);
    set_gradient(q, gradient - 0.25 * q.item());  // maximize turns the gradient round first
    decayed.step();
    by_hand.step();
    CHECK(p.item() == doctest::Approx(q.item()).epsilon(1e-14));
  }
}

TEST_CASE("adam: names itself in messages and files, and decay is off by default") {
  const Tensor p = scalar(1.0);
  CHECK(error_of([&] {
          Adam({{"p", p}}, {.beta2 = 1.5});
        }) == "adam: beta2 is 1.5, must be at least 0 and less than 1");
  Adam adam({{"p", p}});
  AdamW adamw({{"p", p}});
  CHECK(adam.options(0).weight_decay == 0.0);
  CHECK(error_of([&] { adamw.load_state_dict(adam.state_dict(), adam.metadata()); }) ==
        "adamw: the state was written by \"adam\"");
}
