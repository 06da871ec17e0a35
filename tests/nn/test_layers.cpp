#include <cmath>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "autograd/gradcheck.h"
#include "nn/embedding.h"
#include "nn/transformer_block.h"
#include "tests/core/temporary_folder.h"

using minim::AttentionRows;
using minim::DType;
using minim::Tensor;
using minim::Tensors;
using minim::test::error_of;
using namespace minim::nn;

namespace {

using Names = std::vector<std::string>;

Names names_and_shapes(const Module& module) {
  Names names;
  for (const auto& [name, tensor] : module.parameters())
    names.push_back(fmt::format("{} {}", name, tensor.shape()));
  return names;
}

double worst_difference(const Tensor& a, const Tensor& b) {
  REQUIRE(a.shape() == b.shape());
  const auto x = a.to_vector<double>(), y = b.to_vector<double>();
  double worst = 0;
  for (size_t i = 0; i < x.size(); ++i)
    worst = std::max(worst, std::abs(x[i] - y[i]));
  return worst;
}

// Sequences of 3 and 2 tokens.
const Tensor offsets = Tensor::from<int32_t>({0, 3, 5}, {3});
AttentionRows all_rows() {
  return {offsets, Tensor::from<int32_t>({0, 3}, {2}), Tensor::from<int32_t>({3, 5}, {2})};
}

Scope f64_scope() {
  return Scope{ModelOptions{.dtype = DType::f64, .initializer_range = 0.5}};
}

const TransformerBlockOptions small = {.dim = 4, .heads = 2, .hidden_dim = 6};

}  // namespace

TEST_CASE("Linear has weight [out, in] of N(0, initializer_range) and a zero bias") {
  const Linear layer(300, 200);
  CHECK(names_and_shapes(layer) == Names{"weight [200, 300]", "bias [200]"});
  CHECK(layer.bias.to_vector<float>() == std::vector<float>(200, 0));
  double square = 0;
  for (double w : layer.weight.to_vector<double>())
    square += w * w;
  // The deviation's standard error is 0.02 / sqrt(2 * 60000) = 5.8e-5.
  CHECK(std::abs(std::sqrt(square / 60000) - 0.02) < 3e-4);

  const Linear wide(3, 2, Scope{ModelOptions{.initializer_range = 100}} / "pre_classifier");
  CHECK(names_and_shapes(wide) == Names{"pre_classifier.weight [2, 3]", "pre_classifier.bias [2]"});
  CHECK(std::abs(wide.weight.to_vector<float>()[0]) > 1);
}

TEST_CASE("Linear is x weightᵀ + bias over the last dim") {
  const Linear layer(2, 3);
  minim::copy(layer.weight, Tensor::from<float>({1, 2, 3, 4, 5, 6}, {3, 2}));
  minim::copy(layer.bias, Tensor::from<float>({0, 0, 100}, {3}));
  const Tensor y = layer.forward(Tensor::from<float>({1, 0, 0, 1}, {2, 1, 2}));
  CHECK(y.shape() == minim::Shape{2, 1, 3});
  CHECK(y.to_vector<float>() == std::vector<float>{1, 3, 105, 2, 4, 106});
}

TEST_CASE("Linear without a bias has one parameter") {
  const Linear layer(2, 1, Scope(), false);
  CHECK(names_and_shapes(layer) == Names{"weight [1, 2]"});
  minim::fill(layer.weight, 1);
  CHECK(layer.forward(Tensor::from<float>({3, 4}, {1, 2})).item() == 7);
}

TEST_CASE("Linear refuses an input that does not fit, with both shapes") {
  CHECK(error_of([] {
          Linear(4, 8).forward(Tensor::zeros({2, 5}));
        }) == "linear: input [2, 5] does not fit weight [8, 4] (last dim must be 4)");
}

TEST_CASE("Embedding looks rows up; the padding row is zero and gets no gradient") {
  const Embedding layer(5, 2, Scope() / "word_embeddings", 0);
  CHECK(names_and_shapes(layer) == Names{"word_embeddings.weight [5, 2]"});
  const auto weight = layer.weight.to_vector<float>();
  CHECK(weight[0] == 0);
  CHECK(weight[1] == 0);
  CHECK(weight[2] != 0);
  const Tensor y = layer.forward(Tensor::from<int32_t>({3, 0, 3}, {1, 3}));
  CHECK(y.shape() == minim::Shape{1, 3, 2});
  CHECK(y.to_vector<float>() ==
        std::vector<float>{weight[6], weight[7], 0, 0, weight[6], weight[7]});
  sum(y).backward();
  CHECK(layer.weight.grad().to_vector<float>() == std::vector<float>{0, 0, 0, 0, 0, 0, 2, 2, 0, 0});
}

TEST_CASE("Embedding refuses an id outside the table, naming it and its position") {
  const Embedding layer(5, 2);
  CHECK(error_of([&] {
          layer.forward(Tensor::from<int64_t>({1, 5}, {2}));
        }) == "embedding: id 5 at position 1 is outside a table of 5 rows");
}

TEST_CASE("LayerNorm starts as the plain normalisation") {
  const LayerNorm layer(2, Scope() / "LayerNorm");
  CHECK(names_and_shapes(layer) == Names{"LayerNorm.weight [2]", "LayerNorm.bias [2]"});
  // Mean 2, biased variance 1.
  CHECK(layer.forward(Tensor::from<float>({1, 3}, {1, 2})).to_vector<float>() ==
        std::vector<float>{-1, 1});
  CHECK(layer.eps == 1e-12);
}

TEST_CASE("Dropout acts in training only and repeats from the generator's state") {
  const Dropout layer(0.25f);
  const Tensor x = Tensor::full({1000}, 1);
  const minim::Generator before = layer.generator();
  const auto first = layer.forward(x).to_vector<float>();
  CHECK(layer.forward(x).to_vector<float>() != first);
  layer.generator() = before;
  CHECK(layer.forward(x).to_vector<float>() == first);

  int64_t dropped = 0;
  for (float value : first) {
    // 0.25 is a multiple of 2^-16, so the scale is exactly 1 / 0.75.
    REQUIRE((value == 0 || value == 1 / 0.75f));
    dropped += value == 0;
  }
  CHECK(std::abs(double(dropped) - 250) < 5 * std::sqrt(1000 * 0.25 * 0.75));

  layer.eval();
  const minim::Generator resting = layer.generator();
  CHECK(layer.forward(x).is_same(x));
  CHECK(layer.generator().offset == resting.offset);
}

TEST_CASE("activations have Hugging Face's names and values") {
  struct Case {
    const char* name;
    double at_1, at_minus_1;
  };
  // gelu, gelu_tanh: Hugging Face's; the others from their formulas.
  const double tanh_form[] = {0.8411919906082768, -0.15880800939172324};
  const double sigmoid = 1 / (1 + std::exp(-1.0));
  const Case cases[] = {
      {"gelu", 0.8413447460685429, -0.15865525393145707},
      {"gelu_new", tanh_form[0], tanh_form[1]},
      {"gelu_pytorch_tanh", tanh_form[0], tanh_form[1]},
      {"gelu_fast", tanh_form[0], tanh_form[1]},
      {"quick_gelu", 1 / (1 + std::exp(-1.702)), -1 / (1 + std::exp(1.702))},
      {"relu", 1, 0},
      {"silu", sigmoid, sigmoid - 1},
      {"swish", sigmoid, sigmoid - 1},
      {"tanh", std::tanh(1.0), -std::tanh(1.0)},
      {"sigmoid", sigmoid, 1 - sigmoid},
      {"mish", std::tanh(std::log1p(std::exp(1.0))), -std::tanh(std::log1p(std::exp(-1.0)))},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    const Activation activation(c.name);
    CHECK(activation.name() == c.name);
    const auto y = activation.forward(Tensor::from<double>({1, -1}, {2})).to_vector<double>();
    CHECK(std::abs(y[0] - c.at_1) < 1e-14);
    CHECK(std::abs(y[1] - c.at_minus_1) < 1e-14);
  }
}

TEST_CASE("an unknown activation is an error that lists the known ones") {
  CHECK(error_of([] { Activation("gleu"); }) ==
        "activation: \"gleu\" is unknown; known are gelu, gelu_new, gelu_pytorch_tanh, gelu_fast, "
        "quick_gelu, relu, silu, swish, tanh, sigmoid, mish");
}

TEST_CASE("FeedForward is lin2 of the activation of lin1, then dropout") {
  const FeedForward layer(2, 3, "relu", 0.5f, Scope() / "ffn");
  CHECK(names_and_shapes(layer) == Names{"ffn.lin1.weight [3, 2]", "ffn.lin1.bias [3]",
                                         "ffn.lin2.weight [2, 3]", "ffn.lin2.bias [2]"});
  const Tensor x = minim::randn({40, 2});
  layer.eval();
  const Tensor y = layer.forward(x);
  CHECK(worst_difference(y, layer.lin2.forward(relu(layer.lin1.forward(x)))) == 0);
  layer.train();
  const auto dropped = layer.forward(x).to_vector<float>();
  const auto whole = y.to_vector<float>();
  for (size_t i = 0; i < whole.size(); ++i)
    CHECK((dropped[i] == 0 || dropped[i] == 2 * whole[i]));
}

TEST_CASE("attention has four projections and looks at its own sequence alone") {
  const MultiHeadSelfAttention layer(4, 2, 0, f64_scope() / "attention");
  CHECK(names_and_shapes(layer) ==
        Names{"attention.q_lin.weight [4, 4]", "attention.q_lin.bias [4]",
              "attention.k_lin.weight [4, 4]", "attention.k_lin.bias [4]",
              "attention.v_lin.weight [4, 4]", "attention.v_lin.bias [4]",
              "attention.out_lin.weight [4, 4]", "attention.out_lin.bias [4]"});
  const Tensor x = minim::randn({5, 4}, 1, DType::f64);
  const Tensor y = layer.forward(x, x, all_rows());
  CHECK(y.shape() == minim::Shape{5, 4});

  // Softmax attention of one sequence written with matrices, head by head.
  const Tensor tokens = slice(x, 0, 0, 3);
  Tensors heads;
  for (int64_t head = 0; head < 2; ++head) {
    const auto part = [&](const Linear& lin) {
      return slice(lin.forward(tokens), 1, 2 * head, 2 * head + 2);
    };
    const Tensor scores =
        matmul(part(layer.q_lin), transpose(part(layer.k_lin), 0, 1)) / std::sqrt(2.0);
    heads.push_back(matmul(softmax(scores), part(layer.v_lin)));
  }
  CHECK(worst_difference(slice(y, 0, 0, 3), layer.out_lin.forward(minim::concat(heads, 1))) <
        1e-14);

  // Another second sequence leaves the first one's rows as they are, bit for bit.
  const Tensor changed = minim::concat({tokens, minim::randn({2, 4}, 9, DType::f64)});
  const Tensor other = layer.forward(changed, changed, all_rows());
  CHECK(worst_difference(slice(other, 0, 0, 3), slice(y, 0, 0, 3)) == 0);
  CHECK(worst_difference(slice(other, 0, 3, 5), slice(y, 0, 3, 5)) > 0);
}

TEST_CASE("attention refuses heads that do not divide dim") {
  CHECK(error_of([] { MultiHeadSelfAttention(8, 3, 0); }) ==
        "attention: 3 heads do not divide dim 8");
  CHECK(error_of([] { MultiHeadSelfAttention(8, 0, 0); }) ==
        "attention: 0 heads do not divide dim 8");
}

TEST_CASE("attention drops probabilities in training only") {
  const MultiHeadSelfAttention layer(4, 2, 0.5f, f64_scope());
  const Tensor x = minim::randn({5, 4}, 1, DType::f64);
  const Tensor trained = layer.forward(x, x, all_rows());
  layer.eval();
  const uint64_t offset = layer.generator().offset;
  const Tensor evaluated = layer.forward(x, x, all_rows());
  CHECK(worst_difference(trained, evaluated) > 1e-3);
  CHECK(worst_difference(layer.forward(x, x, all_rows()), evaluated) == 0);
  CHECK(layer.generator().offset == offset);
}

TEST_CASE("a transformer block has DistilBERT's 16 parameters in its order") {
  const TransformerBlock block(small, Scope() / "layer" / 0);
  CHECK(names_and_shapes(block) ==
        Names{"layer.0.attention.q_lin.weight [4, 4]", "layer.0.attention.q_lin.bias [4]",
              "layer.0.attention.k_lin.weight [4, 4]", "layer.0.attention.k_lin.bias [4]",
              "layer.0.attention.v_lin.weight [4, 4]", "layer.0.attention.v_lin.bias [4]",
              "layer.0.attention.out_lin.weight [4, 4]", "layer.0.attention.out_lin.bias [4]",
              "layer.0.sa_layer_norm.weight [4]", "layer.0.sa_layer_norm.bias [4]",
              "layer.0.ffn.lin1.weight [6, 4]", "layer.0.ffn.lin1.bias [6]",
              "layer.0.ffn.lin2.weight [4, 6]", "layer.0.ffn.lin2.bias [4]",
              "layer.0.output_layer_norm.weight [4]", "layer.0.output_layer_norm.bias [4]"});
}

TEST_CASE("a transformer block adds and then normalises, twice") {
  const TransformerBlock block(small, f64_scope());
  block.eval();
  const Tensor x = minim::randn({5, 4}, 1, DType::f64);
  const Tensor y = block.forward(x, x, all_rows());
  const Tensor h = block.sa_layer_norm.forward(x + block.attention.forward(x, x, all_rows()));
  CHECK(worst_difference(y, block.output_layer_norm.forward(h + block.ffn.forward(h))) == 0);
  // The mean over dim of a normalised row is 0.
  CHECK(worst_difference(mean(y, {1}), Tensor::zeros({5}, DType::f64)) < 1e-15);
}

TEST_CASE("a transformer block of some rows equals those rows of the whole") {
  const TransformerBlock block(small, f64_scope());
  block.eval();
  const Tensor x = minim::randn({5, 4}, 1, DType::f64);
  const Tensor firsts = Tensor::from<int32_t>({0, 3}, {2});
  AttentionRows rows = all_rows();
  rows.query_offsets = Tensor::from<int32_t>({0, 1, 2}, {3});
  CHECK(worst_difference(block.forward(index_select(x, 0, firsts), x, rows),
                         index_select(block.forward(x, x, all_rows()), 0, firsts)) < 1e-14);
}

TEST_CASE("a transformer block's backward agrees with differences, for x and all parameters") {
  const TransformerBlock block(small, f64_scope());
  block.eval();
  Tensors inputs = {minim::randn({5, 4}, 1, DType::f64)};
  for (const auto& [name, parameter] : block.parameters())
    inputs.push_back(parameter.detach());
  const auto function = [](const Tensors& in) {
    // A block whose parameters are the inputs.
    size_t next = 1;
    ModelOptions options{.dtype = DType::f64};
    options.source = [&](const std::string&, const minim::Shape&) { return in[next++]; };
    const TransformerBlock traced(small, Scope(options));
    traced.eval();
    return traced.forward(in[0], in[0], all_rows());
  };
  const minim::GradcheckResult result = gradcheck(function, inputs);
  CAPTURE(result.message);
  CHECK(result.ok);
}
