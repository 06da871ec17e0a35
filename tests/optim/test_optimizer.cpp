#include <memory>

#include <doctest/doctest.h>

#include "optim/adamw.h"
#include "optim/optimizer.h"
#include "tests/optim/optim_testing.h"

using namespace minim;
using namespace minim::optim;
using namespace minim::test;

// What every optimizer has around its rule, shown with AdamW: groups, state by name, parameters
// without gradient.

TEST_CASE("optimizer: state is found by the parameter's full name, with the literature's names") {
  const Tensor w = parameter(noise(6, 2), {2, 3});
  AdamW optimizer({{"distilbert.transformer.layer.0.attention.q_lin.weight", w}});
  set_gradient(w, 0.5);
  optimizer.step();
  const auto& state = optimizer.state("distilbert.transformer.layer.0.attention.q_lin.weight");
  CHECK(state.exp_avg.shape() == Shape{2, 3});
  CHECK(state.exp_avg.to_vector<float>()[4] == doctest::Approx(0.05f));
  CHECK(state.step == 1);
}

TEST_CASE("optimizer: a name that is none is answered with similar ones") {
  const NamedTensors parameters = {{"layer.0.q_lin.weight", scalar(1)},
                                   {"layer.0.q_lin.bias", scalar(1)},
                                   {"layer.0.k_lin.weight", scalar(1)},
                                   {"head", scalar(1)}};
  const AdamW optimizer(parameters);
  CHECK(error_of([&] { optimizer.state("layer.0.q_lin.weigth"); }) ==
        "adamw: none of the 4 parameters is named layer.0.q_lin.weigth; similar: "
        "layer.0.q_lin.weight, layer.0.k_lin.weight, layer.0.q_lin.bias");
  CHECK(error_of([&] { optimizer.state("q_lin.bias"); }) ==
        "adamw: none of the 4 parameters is named q_lin.bias; similar: layer.0.q_lin.bias");
  CHECK(error_of([&] { optimizer.state("xyz"); }) ==
        "adamw: none of the 4 parameters is named xyz");
}

TEST_CASE("optimizer: a parameter without gradient is left alone: no state, no decay, no step") {
  const Tensor used = scalar(1.0), unused = scalar(1.0);
  AdamW optimizer({{"used", used}, {"unused", unused}}, {.weight_decay = 0.1});
  set_gradient(used, 1.0);
  optimizer.step();
  optimizer.step();
  CHECK(unused.item() == 1.0);
  CHECK(error_of([&] { optimizer.state("unused"); }) ==
        "adamw: unused has no state yet, as it has had no gradient");
  set_gradient(unused, 1.0);
  optimizer.step();
  CHECK(optimizer.state("used").step == 3);
  CHECK(optimizer.state("unused").step == 1);
}

TEST_CASE("optimizer: all parameters can be walked through with their states") {
  const Tensor a = scalar(1.0), b = scalar(2.0);
  AdamW optimizer({{"a", a}, {"b", b}});
  set_gradient(b, 1.0);
  optimizer.step();
  std::string seen;
  for (const auto& [name, parameter, state] : optimizer.items())
    seen += fmt::format("{} {} {}; ", name, parameter.shape(), state ? state->step : -1);
  CHECK(seen == "a [1] -1; b [1] 1; ");
}

TEST_CASE("optimizer: a group's own rate and decay win over the options") {
  const Tensor a = scalar(1.0), b = scalar(1.0);
  AdamW optimizer({ParameterGroup{.parameters = {{"a", a}}, .weight_decay = 0.0},
                   ParameterGroup{.parameters = {{"b", b}}, .lr = 0.5}},
                  {.lr = 0.25, .eps = 0.0, .weight_decay = 0.5});
  CHECK(optimizer.options(0).lr == 0.25);
  CHECK(optimizer.options(0).weight_decay == 0.0);
  CHECK(optimizer.options(1).lr == 0.5);
  CHECK(optimizer.options(1).weight_decay == 0.5);
  set_gradient(a, 1.0);
  set_gradient(b, 1.0);
  optimizer.step();
  CHECK(a.item() == doctest::Approx(0.75).epsilon(1e-12));
  CHECK(b.item() == doctest::Approx(1.0 - 0.5 * 0.5 - 0.5).epsilon(1e-12));
}

TEST_CASE("optimizer: step(lr) sets the rate of one step; a group's own rate keeps its ratio") {
  const Tensor a = scalar(0.0), b = scalar(0.0);
  AdamW optimizer({ParameterGroup{.parameters = {{"a", a}}},
                   ParameterGroup{.parameters = {{"b", b}}, .lr = 0.1}},
                  {.lr = 0.2, .eps = 0.0, .weight_decay = 0.0});
  set_gradient(a, 1.0);
  set_gradient(b, 1.0);
  optimizer.step(0.02);
  CHECK(a.item() == doctest::Approx(-0.02).epsilon(1e-12));
  CHECK(b.item() == doctest::Approx(-0.01).epsilon(1e-12));
  CHECK(optimizer.options(0).lr == 0.2);  // the next step() is at the old rate
  CHECK(error_of([&] { optimizer.step(-1.0); }) ==
        "adamw: lr is -1, must be finite and not negative");
  CHECK(optimizer.state("a").step == 1);  // refused before anything moved

  AdamW frozen({ParameterGroup{.parameters = {{"a", a}}, .lr = 0.1}}, {.lr = 0.0});
  CHECK(error_of([&] { frozen.step(0.02); }) ==
        "adamw: group 0 has a rate of 0.1, which has no ratio to the optimizer's 0");
}

TEST_CASE("optimizer: gradients can be scaled as they are read, which saves clipping a pass") {
  const Tensor a = parameter(noise(100, 2), {100}), b = a.clone();
  Tensor(b).set_requires_grad();
  AdamW scaled({{"a", a}}), plain({{"b", b}});
  Tensor(a).set_grad(Tensor::from(noise(100, 3), {100}));
  Tensor halves = Tensor::from(noise(100, 3), {100});
  for (float& g : halves.values<float>())
    g *= 0.5f;
  Tensor(b).set_grad(halves);
  scaled.step(1e-3, 0.5);
  plain.step(1e-3);
  CHECK(a.to_vector<float>() == b.to_vector<float>());
  CHECK(error_of([&] { scaled.step(1e-3, INFINITY); }) ==
        "adamw: gradient_scale is inf, must be finite");
}

TEST_CASE("optimizer: groups can be added between steps, and held states stay where they are") {
  const Tensor a = scalar(1.0), b = scalar(1.0);
  AdamW optimizer({{"a", a}});
  set_gradient(a, 1.0);
  optimizer.step();
  const auto& held = optimizer.state("a");
  optimizer.add_group({.parameters = {{"b", b}}, .lr = 0.5});
  optimizer.add_group({.parameters = {{"c", scalar(1.0)}}}, {.lr = 0.125, .amsgrad = true});
  set_gradient(b, 1.0);
  optimizer.step();
  CHECK(held.step == 2);
  CHECK(optimizer.state("b").step == 1);
  CHECK(optimizer.groups().size() == 3);
  CHECK(optimizer.options(2).amsgrad);
  CHECK_FALSE(optimizer.options(1).amsgrad);
}

TEST_CASE("optimizer: groups that are empty or overlap are refused by name, and nothing is added") {
  const Tensor w = scalar(1.0);
  AdamW optimizer({{"w", w}});
  const auto error = [&](NamedTensors parameters) {
    return error_of([&] { optimizer.add_group({.parameters = std::move(parameters)}); });
  };
  CHECK(error({}) == "adamw: group 1 holds no parameters");
  CHECK(error({{"v", scalar(1)}, {"w", scalar(1)}}) == "adamw: parameter w is in group 0 already");
  CHECK(error({{"v", scalar(1)}, {"v", scalar(1)}}) == "adamw: parameter v is twice in group 1");
  CHECK(error({{"tied", w}}) ==
        "adamw: parameters w and tied are one tensor; give it under one name");
  CHECK(error({{"v", Tensor()}}) == "adamw: parameter v is undefined");
  CHECK(error({{"v", Tensor::zeros({2}, DType::i64)}}) ==
        "adamw: parameter v is i64, must be f32, f64, f16 or bf16");
  CHECK(error({{"v", Tensor::zeros({2, 3}).view({3, 2}, {1, 3})}}) ==
        "adamw: parameter v of shape [3, 2] has strides [1, 3], must be contiguous");
  CHECK(error_of([&] {
          optimizer.add_group({.parameters = {{"v", scalar(1)}}, .lr = -1.0});
        }) == "adamw: lr is -1, must be finite and not negative");
  CHECK(optimizer.groups().size() == 1);
  CHECK(optimizer.items().size() == 1);
  CHECK(error_of([] { AdamW(std::vector<ParameterGroup>{}); }) == "adamw: there are no parameters");
  CHECK(error_of([] { AdamW(NamedTensors{}); }) == "adamw: group 0 holds no parameters");
}

TEST_CASE("optimizer: zero_grad drops gradients, so that the next step does nothing") {
  const Tensor w = scalar(1.0);
  AdamW optimizer({{"w", w}});
  set_gradient(w, 1.0);
  optimizer.zero_grad();
  CHECK_FALSE(w.grad().defined());
  optimizer.step();
  CHECK(w.item() == 1.0);
}

TEST_CASE("optimizer: a step counts as a write, so a graph recorded before it refuses to run") {
  const Tensor w = scalar(1.0);
  AdamW optimizer({{"w", w}});
  set_gradient(w, 1.0);
  const int64_t before = w.version();
  optimizer.step();
  CHECK(w.version() == before + 1);
}

TEST_CASE("optimizer: gradients may lie in memory in any order") {
  const Tensor w = parameter(std::vector<float>{0, 0, 0, 0}, {2, 2});
  AdamW optimizer({{"w", w}}, {.weight_decay = 0.0});
  const Tensor g = Tensor::from({1.0f, 2.0f, -3.0f, 4.0f}, {2, 2});
  Tensor(w).set_grad(g.view({2, 2}, {1, 2}));  // transposed: -3 is at [0, 1]
  optimizer.step();
  CHECK(w.to_vector<float>()[1] > 0);
  CHECK(w.to_vector<float>()[2] < 0);
}

TEST_CASE("optimizer: one that was chosen by name needs no template") {
  const Tensor w = scalar(1.0);
  const std::unique_ptr<AnyOptimizer> optimizer = std::make_unique<AdamW>(NamedTensors{{"w", w}});
  set_gradient(w, 1.0);
  optimizer->step(0.5, 1.0);
  CHECK(optimizer->name() == "adamw");
  CHECK(optimizer->state_dict("w").size() == 3);
  CHECK(optimizer->state_dict("w")[2].name == "step");
  CHECK(optimizer->options_of(0)[0] == std::pair<std::string, std::string>("lr", "0.001"));
}
