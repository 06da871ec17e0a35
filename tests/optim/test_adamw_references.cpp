#include <algorithm>
#include <set>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "core/safetensors.h"
#include "optim/adamw.h"
#include "tests/optim/optim_testing.h"
#include "tests/optim/reference_testing.h"

using namespace minim;
using namespace minim::optim;
using namespace minim::test;
using nlohmann::json;

namespace {

AdamWRule::Options options_from(const json& o) {
  return {.lr = o["lr"],
          .beta1 = o["betas"][0],
          .beta2 = o["betas"][1],
          .eps = o["eps"],
          .weight_decay = o["weight_decay"],
          .amsgrad = o["amsgrad"],
          .maximize = o["maximize"]};
}

void follow_references(Device device) {
  const json table = read_optimizer_json("adamw.json");
  const Checkpoint data = read_safetensors(optimizer_references + "adamw.safetensors");
  for (const auto& [label, dtype, bound] :
       {std::tuple("f64", DType::f64, 1e-12), std::tuple("f32", DType::f32, 2e-5)}) {
    const std::string variant = label;
    double worst = 0;
    for (const json& test : table["cases"]) {
      const std::string name = test["name"];
      CAPTURE(name);
      CAPTURE(variant);
      NamedTensors parameters;
      for (const std::string parameter : test["params"]) {
        Tensor p = convert(data.tensor(name + "/" + parameter + "/p0"), dtype).clone().to(device);
        p.set_requires_grad();
        parameters.push_back({parameter, p});
      }
      std::vector<ParameterGroup> groups;
      if (test.contains("groups")) {
        for (const json& group : test["groups"]) {
          ParameterGroup own{.parameters = {}, .weight_decay = group["overrides"]["weight_decay"]};
          const std::set<std::string> names = group["params"];
          for (const NamedTensor& p : parameters)
            if (names.contains(p.name)) own.parameters.push_back(p);
          groups.push_back(own);
        }
      } else {
        groups.push_back({.parameters = parameters});
      }
      AdamW optimizer(groups, options_from(test["options"]));

      for (int64_t step = 1; step <= test["steps"]; ++step) {
        CAPTURE(step);
        for (auto& [parameter, p] : parameters) {
          const auto& without = test.value("steps_without_grad", json::object());
          const std::set<int64_t> skipped = without.value(parameter, std::set<int64_t>{});
          const Tensor gradients = data.tensor(name + "/" + parameter + "/grad");
          p.set_grad(skipped.contains(step) ? Tensor()
                                            : convert(row(gradients, step - 1), dtype).to(device));
        }
        test.contains("lr_per_step") ? optimizer.step(test["lr_per_step"][size_t(step - 1)])
                                     : optimizer.step();
        for (const auto& [full_name, p, state] : optimizer.items()) {
          const std::string parameter(full_name);
          CAPTURE(parameter);
          const std::string prefix = fmt::format("{}/{}/{}/", name, parameter, variant);
          const double error = worst_error(p, row(data.tensor(prefix + "p"), step - 1));
          CHECK(error <= bound);
          worst = std::max(worst, error);
          const std::string at_step = fmt::format("{}step{}/", prefix, step);
          if (!data.contains(at_step + "step")) {
            if (step == 1 || step == 2 || step == 10) CHECK(state == nullptr);
            continue;
          }
          REQUIRE(state != nullptr);
          CHECK(state->step == int64_t(data.tensor(at_step + "step").item()));
          for (const auto& [state_key, value] : {std::pair("exp_avg", state->exp_avg),
                                                 {"exp_avg_sq", state->exp_avg_sq},
                                                 {"max_exp_avg_sq", state->max_exp_avg_sq}}) {
            const std::string key = state_key;
            CAPTURE(key);
            CHECK(data.contains(at_step + key) == value.defined());
            if (value.defined()) CHECK(worst_error(value, data.tensor(at_step + key)) <= bound);
          }
        }
      }
    }
    MESSAGE(device.to_string() << " " << variant << ": worst error of a parameter " << worst
                               << ", allowed " << bound);
  }
}

}  // namespace

// Ten steps under every option, against torch.optim.AdamW: parameters after each step, and the
// state after steps 1, 2 and 10. Bounds as the README of the data derives them.
TEST_CASE("adamw: every reference trajectory of torch.optim.AdamW") {
  for (const Device device : devices()) {
    CAPTURE(device.to_string());
    follow_references(device);
  }
}

TEST_CASE("adamw: the example that can be followed by hand, with amsgrad and with maximize") {
  const json golden = read_optimizer_json("golden_vectors.json");
  for (const json& expected : golden["rows"]) {
    const std::string label = expected["label"];
    if (label != "torch AdamW" && label != "amsgrad" && label != "maximize") continue;
    CAPTURE(label);
    const Tensor p = parameter(flattened(golden["p0"]), {2, 3});
    AdamW optimizer({{"p", p}}, {.lr = 0.01,
                                 .weight_decay = 0.1,
                                 .amsgrad = label == "amsgrad",
                                 .maximize = label == "maximize"});
    for (size_t step = 0; step < 3; ++step) {
      Tensor(p).set_grad(Tensor::from(flattened(golden["gradients"][step]), {2, 3}));
      optimizer.step();
      for (size_t i = 0; i < 6; ++i)
        CHECK(is_near(p.values<double>()[i], expected["p_after_each_step"][step][i], 1e-12));
    }
  }
}
