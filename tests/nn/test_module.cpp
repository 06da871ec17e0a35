#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "nn/activation.h"
#include "nn/dropout.h"
#include "nn/linear.h"
#include "nn/sequential.h"
#include "tests/core/temporary_folder.h"

using minim::NamedTensors;
using minim::Tensor;
using minim::nn::Activation;
using minim::nn::Dropout;
using minim::nn::Linear;
using minim::nn::Scope;
using minim::nn::Sequential;
using minim::test::error_of;

namespace {

// A layer as a user writes one: y = x + gate * lin(x).
struct GatedResidual : minim::nn::Module {
  explicit GatedResidual(int64_t dim, Scope at = Scope())
      : Module(at),
        gate(at.parameter("gate", {dim}, minim::nn::Init::zeros())),
        lin(dim, dim, at / "lin") {}

  Tensor forward(const Tensor& x) const { return x + gate * lin.forward(x); }

  Tensor gate;
  Linear lin;
};

// With a buffer and a submodule that drops.
struct Counted : minim::nn::Module {
  explicit Counted(Scope at = Scope())
      : Module(at),
        body(2, at / "body"),
        dropout(0.5f, at / "dropout"),
        steps(at.buffer("steps", Tensor::full({1}, 3))) {}

  GatedResidual body;
  Dropout dropout;
  Tensor steps;
};

std::vector<std::string> names_of(const NamedTensors& tensors) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : tensors)
    names.push_back(name);
  return names;
}

}  // namespace

TEST_CASE("a custom layer's parameters have full names in the order in which they were made") {
  const GatedResidual layer(3, Scope() / "top");
  CHECK(names_of(layer.parameters()) ==
        std::vector<std::string>{"top.gate", "top.lin.weight", "top.lin.bias"});
  CHECK(names_of(layer.lin.parameters()) ==
        std::vector<std::string>{"top.lin.weight", "top.lin.bias"});
  CHECK(layer.parameter_count() == 3 + 9 + 3);
}

TEST_CASE("a custom layer computes and its parameters get gradients") {
  GatedResidual layer(2);
  minim::copy(layer.gate, Tensor::from<float>({1, 2}, {2}));
  minim::copy(layer.lin.weight, Tensor::from<float>({1, 2, 3, 4}, {2, 2}));
  const Tensor x = Tensor::from<float>({1, -1}, {1, 2});
  const Tensor y = layer.forward(x);
  // lin(x) = [1 - 2, 3 - 4] = [-1, -1];  y = x + gate * lin(x)
  CHECK(y.to_vector<float>() == std::vector<float>{0, -3});
  sum(y).backward();
  CHECK(layer.gate.grad().to_vector<float>() == std::vector<float>{-1, -1});
  CHECK(layer.lin.bias.grad().to_vector<float>() == std::vector<float>{1, 2});
  CHECK(layer.lin.weight.grad().to_vector<float>() == std::vector<float>{1, -1, 2, -2});

  layer.zero_grad();
  for (const auto& [name, parameter] : layer.parameters())
    CHECK_FALSE(parameter.grad().defined());
}

TEST_CASE("copies of a layer share its parameters") {
  const GatedResidual layer(2);
  const GatedResidual copy = layer;
  minim::fill(copy.gate, 9);
  CHECK(layer.gate.to_vector<float>() == std::vector<float>{9, 9});
}

TEST_CASE("a state dict holds parameters, then buffers") {
  const Counted model;
  CHECK(names_of(model.state_dict()) ==
        std::vector<std::string>{"body.gate", "body.lin.weight", "body.lin.bias", "steps"});
  CHECK(names_of(model.buffers()) == std::vector<std::string>{"steps"});
  CHECK(model.parameter_count() == 8);
}

TEST_CASE("load_state_dict copies values and converts dtypes, in any order") {
  const Counted from{Scope{minim::nn::ModelOptions{.seed = 1, .dtype = minim::DType::f64}}};
  const Counted to{Scope{minim::nn::ModelOptions{.seed = 2}}};
  minim::fill(from.steps, 8);
  NamedTensors values = from.state_dict();
  std::swap(values.front(), values.back());
  to.load_state_dict(values);
  for (size_t i = 0; i < to.state_dict().size(); ++i)
    CHECK(to.state_dict()[i].tensor.to_vector<float>() ==
          from.state_dict()[i].tensor.to_vector<float>());
  CHECK(to.body.lin.weight.dtype() == minim::DType::f32);
  CHECK(to.body.lin.weight.requires_grad());
}

TEST_CASE("load_state_dict names all that does not fit and then changes nothing") {
  const Counted model;
  const std::vector<float> before = model.body.lin.weight.to_vector<float>();
  NamedTensors values = {{"body.lin.weight", Tensor::zeros({2, 2})},
                         {"body.lin.bias", Tensor::zeros({3})},
                         {"extra.a", Tensor::zeros({1})},
                         {"extra.b", Tensor::zeros({1})}};
  CHECK(error_of([&] { model.load_state_dict(values); }) ==
        "load_state_dict: 2 missing (body.gate; steps), 2 unexpected (extra.a; extra.b), "
        "1 of another shape (body.lin.bias is [3], must be [2])");
  CHECK(model.body.lin.weight.to_vector<float>() == before);

  values = model.state_dict();
  values.push_back(values[1]);
  CHECK(error_of([&] { model.load_state_dict(values); }) ==
        "load_state_dict: body.lin.weight is given twice");
}

TEST_CASE("train and eval act on the whole model, from any of its layers") {
  const Counted model;
  CHECK(model.training());
  CHECK(model.dropout.training());
  model.eval();
  CHECK_FALSE(model.dropout.training());
  model.dropout.train();
  CHECK(model.body.lin.training());
  CHECK(&model.generator() == &model.dropout.generator());
}

TEST_CASE("frozen parameters get no gradient") {
  const Counted model;
  const Tensor x = Tensor::from<float>({1, 2}, {1, 2});
  sum(model.body.forward(x)).backward();
  CHECK(model.freeze("body.lin.*") == 2);
  CHECK_FALSE(model.body.lin.weight.grad().defined());  // not even the one it had
  sum(model.body.forward(x)).backward();
  CHECK_FALSE(model.body.lin.weight.grad().defined());
  CHECK(model.body.gate.grad().defined());
  // Still a parameter: saved, counted.
  CHECK(model.parameter_count() == 8);
}

TEST_CASE("a pattern without a match is an error") {
  const Counted model;
  CHECK(error_of([&] { model.freeze("body.attention.*"); }) ==
        "freeze: no parameter's name matches \"body.attention.*\"");
  CHECK(model.freeze("*.bias") == 1);
  CHECK(model.freeze("body.lin.weigh?") == 1);
}

TEST_CASE("Sequential applies its layers in order") {
  const Scope at;
  const Sequential mlp{Linear(2, 2, at / 0), Activation("relu"), Linear(2, 1, at / 2)};
  CHECK(names_of(at.parameters()) ==
        std::vector<std::string>{"0.weight", "0.bias", "2.weight", "2.bias"});
  minim::copy(std::get<0>(mlp.layers).weight, Tensor::from<float>({1, 0, 0, 1}, {2, 2}));
  minim::copy(std::get<2>(mlp.layers).weight, Tensor::from<float>({10, 1}, {1, 2}));
  // relu([3, -2]) = [3, 0]
  CHECK(mlp.forward(Tensor::from<float>({3, -2}, {1, 2})).to_vector<float>() ==
        std::vector<float>{30});
}
