#include <doctest/doctest.h>

#include "optim/make_optimizer.h"
#include "tests/optim/optim_testing.h"

using namespace minim;
using namespace minim::optim;
using namespace minim::test;

namespace {

std::unique_ptr<AnyOptimizer> make(std::string_view name, const OptimizerArguments& arguments) {
  return make_optimizer(name, {ParameterGroup{.parameters = {{"w", scalar(1.0)}}}}, arguments);
}

std::string option(const AnyOptimizer& optimizer, std::string_view key) {
  for (const auto& [name, value] : optimizer.options_of(0))
    if (name == key) return value;
  return "no such option";
}

}  // namespace

TEST_CASE("optimizers are made by name, also by Hugging Face's") {
  for (const std::string_view name : optimizer_names())
    CHECK(make(name, {})->name() == name);
  CHECK(make("adamw_torch", {})->name() == "adamw");
  CHECK(make("adamw_torch_fused", {})->name() == "adamw");
}

TEST_CASE("command-line arguments reach the options of the same meaning") {
  const OptimizerArguments arguments = {.learning_rate = 0.5,
                                        .adam_beta1 = 0.25,
                                        .adam_beta2 = 0.75,
                                        .adam_epsilon = 0.125,
                                        .weight_decay = 0.0625,
                                        .optim_args = "amsgrad=True,maximize=true"};
  const auto adamw = make("adamw", arguments);
  CHECK(option(*adamw, "lr") == "0.5");
  CHECK(option(*adamw, "beta1") == "0.25");
  CHECK(option(*adamw, "beta2") == "0.75");
  CHECK(option(*adamw, "eps") == "0.125");
  CHECK(option(*adamw, "weight_decay") == "0.0625");
  CHECK(option(*adamw, "amsgrad") == "true");
  CHECK(option(*adamw, "maximize") == "true");
  const auto sgd = make("sgd", {.optim_args = "momentum=0.5"});
  CHECK(option(*sgd, "momentum") == "0.5");
  CHECK(option(*sgd, "lr") == "5e-05");
}

TEST_CASE("embeddings stay in f32 by name, or by the short option for what Hugging Face does") {
  for (const char* arguments :
       {"embeddings_f32=true", "embeddings_f32=True", "keep_f32=embeddings"})
    CHECK(option(*make("adamw_bnb_8bit", {.optim_args = arguments}), "keep_f32") == "embeddings");
  CHECK(option(*make("adam8bit", {}), "keep_f32") == "");
}

TEST_CASE("unknown names and options are answered with those there are") {
  CHECK(error_of([] { make("lion", {}); }).starts_with("optim: \"lion\" is unknown; there are "));
  CHECK(error_of([] { make("sgd", {.optim_args = "speed=2"}); }) ==
        "optim_args: sgd has no option \"speed\"; it has lr, momentum, dampening, weight_decay, "
        "nesterov, maximize");
  CHECK(error_of([] { make("sgd", {.optim_args = "momentum"}); }) ==
        "optim_args: \"momentum\" has no value; write key=value");
  CHECK(error_of([] { make("sgd", {.optim_args = "lr=1"}); }) ==
        "optim_args: lr is set by learning_rate");
  CHECK(error_of([] { make("sgd", {.optim_args = "momentum=fast"}); }) ==
        "sgd: option momentum is \"fast\", must be a number");
}
