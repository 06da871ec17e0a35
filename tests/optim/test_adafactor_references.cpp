#include <algorithm>
#include <set>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "core/safetensors.h"
#include "optim/adafactor.h"
#include "optim/adafactor_torch.h"
#include "tests/optim/optim_testing.h"
#include "tests/optim/reference_testing.h"

using namespace minim;
using namespace minim::optim;
using namespace minim::test;
using nlohmann::json;

namespace {

std::optional<double> number_or_none(const json& value) {
  return value.is_null() ? std::optional<double>() : value.get<double>();
}

AdafactorRule::Options hf_options(const json& o) {
  return {.lr = number_or_none(o["lr"]),
          .eps1 = o["eps"][0],
          .eps2 = o["eps"][1],
          .clip_threshold = o["clip_threshold"],
          .decay_rate = o["decay_rate"],
          .beta1 = number_or_none(o["beta1"]),
          .weight_decay = o["weight_decay"],
          .scale_parameter = o["scale_parameter"],
          .relative_step = o["relative_step"],
          .warmup_init = o["warmup_init"]};
}

AdafactorTorchRule::Options torch_options(const json& o) {
  return {.lr = o["lr"],
          .beta2_decay = o["beta2_decay"],
          .eps1 = number_or_none(o["eps"][0]),
          .eps2 = o["eps"][1],
          .d = o["d"],
          .weight_decay = o["weight_decay"],
          .maximize = o["maximize"]};
}

// The gradient of a step, or none where the library had none.
Tensor gradient(const json& test, const Checkpoint& data, const std::string& parameter,
                int64_t step, DType dtype) {
  const auto& without = test.value("steps_without_grad", json::object());
  if (without.value(parameter, std::set<int64_t>{}).contains(step)) return {};
  const std::string name = test["name"];
  return convert(row(data.tensor(name + "/" + parameter + "/grad"), step - 1), dtype);
}

// Ten steps of one case; returns the largest error of a parameter. The state must hold what the
// library's holds under the same names, and nothing else.
template <class Rule>
double compare(Device device, const json& test, const Checkpoint& data, const std::string& variant,
               DType dtype, const typename Rule::Options& options, double bound) {
  const std::string name = test["name"];
  CAPTURE(name);
  CAPTURE(variant);
  CAPTURE(device.to_string());
  NamedTensors parameters;
  for (const std::string parameter : test["params"]) {
    Tensor p = convert(data.tensor(name + "/" + parameter + "/p0"), dtype).clone().to(device);
    p.set_requires_grad();
    parameters.push_back({parameter, p});
  }
  Optimizer<Rule> optimizer(parameters, options);
  double worst = 0;
  for (int64_t step = 1; step <= test["steps"]; ++step) {
    CAPTURE(step);
    for (auto& [parameter, p] : parameters)
      if (const Tensor g = gradient(test, data, parameter, step, dtype); g.defined())
        p.set_grad(g.to(device));
      else
        p.set_grad(Tensor());
    test.contains("lr_per_step") ? optimizer.step(test["lr_per_step"][size_t(step - 1)])
                                 : optimizer.step();
    for (const NamedTensor& own : parameters) {
      const std::string& parameter = own.name;
      CAPTURE(parameter);
      const std::string prefix = fmt::format("{}/{}/{}/", name, parameter, variant);
      const double error = worst_error(own.tensor, row(data.tensor(prefix + "p"), step - 1));
      CHECK(error <= bound);
      worst = std::max(worst, error);
      if (step != 1 && step != 2 && step != 10) continue;
      const NamedTensors state = optimizer.state_dict(parameter);
      const std::string at_step = fmt::format("{}step{}/", prefix, step);
      CHECK(int64_t(state.size()) == std::ranges::count_if(data.tensors(), [&](const auto& entry) {
              return entry.name.starts_with(at_step);
            }));
      for (const NamedTensor& entry : state) {
        const std::string& key = entry.name;
        CAPTURE(key);
        REQUIRE(data.contains(at_step + key));
        CHECK(worst_error(entry.tensor, data.tensor(at_step + key)) <= bound);
      }
    }
  }
  return worst;
}

// Every case in both precisions, with the bounds that the README of the data derives.
template <class Rule>
void compare_all(Device device, const std::string& family,
                 typename Rule::Options (*options)(const json&)) {
  const json table = read_optimizer_json(family + ".json");
  const Checkpoint data = read_safetensors(optimizer_references + family + ".safetensors");
  for (const auto& [variant, dtype, bound] :
       {std::tuple("f64", DType::f64, 1e-12), std::tuple("f32", DType::f32, 2e-5)}) {
    double worst = 0;
    for (const json& test : table["cases"]) {
      // A rate of 0.8 makes every rounding about a hundred times as large: f32 says nothing then.
      const bool amplified = test["name"] == "lr_above_cap";
      if (amplified && dtype == DType::f32) continue;
      const double allowed = amplified ? 10 * bound : bound;
      worst = std::max(worst, compare<Rule>(device, test, data, variant, dtype,
                                            options(test["options"]), allowed));
    }
    MESSAGE(device.to_string() << " " << family << " " << std::string(variant)
                               << ": worst error of a parameter " << worst << ", allowed "
                               << bound);
  }
}

// Three steps of the example that can be followed by hand.
template <class Rule>
void follow(const std::string& label, const Shape& shape, const typename Rule::Options& options) {
  const json golden = read_optimizer_json("golden_vectors.json");
  const size_t n = size_t(shape.numel());
  const auto values = [&](const json& list) {
    std::vector<double> all = flattened(list);
    all.resize(n);  // of a vector: the first row
    return all;
  };
  for (const json& expected : golden["rows"]) {
    if (expected["label"] != label) continue;
    CAPTURE(label);
    const Tensor p = parameter(values(golden["p0"]), shape);
    Optimizer<Rule> optimizer({{"p", p}}, options);
    for (size_t step = 0; step < 3; ++step) {
      Tensor(p).set_grad(Tensor::from(values(golden["gradients"][step]), shape));
      optimizer.step();
      const std::vector<double> after = flattened(expected["p_after_each_step"][step]);
      REQUIRE(after.size() == n);
      for (size_t i = 0; i < n; ++i)
        CHECK(is_near(p.values<double>()[i], after[i], 1e-12));
    }
    for (const NamedTensor& entry : optimizer.state_dict("p")) {
      const std::string& key = entry.name;
      CAPTURE(key);
      const json& state = expected["state_after_3"][key];
      const std::vector<double> after = flattened(state.is_array() ? state : json::array({state}));
      const std::vector<double> got = entry.tensor.template to_vector<double>();
      REQUIRE(after.size() == got.size());
      for (size_t i = 0; i < got.size(); ++i)
        CHECK(is_near(got[i], after[i], 1e-12));
    }
    return;
  }
  FAIL("no such row: " << label);
}

}  // namespace

TEST_CASE("adafactor: every reference trajectory of transformers.optimization.Adafactor") {
  for (const Device device : devices())
    compare_all<AdafactorRule>(device, "adafactor_hf", hf_options);
}

TEST_CASE("adafactor_torch: every reference trajectory of torch.optim.Adafactor") {
  for (const Device device : devices())
    compare_all<AdafactorTorchRule>(device, "adafactor_torch", torch_options);
}

TEST_CASE("adafactor: what Hugging Face refuses, be it only at the first step, is refused") {
  const json table = read_optimizer_json("adafactor_hf.json");
  CHECK(table["refused"].size() == 3);
  for (const json& refused : table["refused"])
    CHECK(error_of([&] {
            Adafactor({{"p", scalar(1.0)}}, hf_options(refused["options"]));
          }).starts_with("adafactor: "));
}

TEST_CASE("adafactor: the example that can be followed by hand, under six sets of options") {
  const auto follow_hf = follow<AdafactorRule>;
  follow_hf("HF default", {2, 3}, {});
  follow_hf("HF warmup_init", {2, 3}, {.warmup_init = true});
  follow_hf("HF 1-D", {3}, {});
  follow_hf("HF lr 1e-3 F F", {2, 3},
            {.lr = 1e-3, .scale_parameter = false, .relative_step = false});
  follow_hf("HF lr 1e-3 T F", {2, 3}, {.lr = 1e-3, .relative_step = false});
  follow_hf("HF beta1 wd", {2, 3},
            {.lr = 1e-3,
             .beta1 = 0.9,
             .weight_decay = 0.1,
             .scale_parameter = false,
             .relative_step = false});
}

TEST_CASE("adafactor_torch: the same example") {
  const auto follow_torch = follow<AdafactorTorchRule>;
  follow_torch("torch default = HF default", {2, 3}, {});
  follow_torch("torch default, eps1 2^-23", {2, 3}, {.eps1 = 0x1p-23});
  follow_torch("torch wd .1", {2, 3}, {.weight_decay = 0.1});
  follow_torch("torch 1-D", {3}, {});
}
