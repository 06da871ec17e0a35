#include <cmath>
#include <numeric>
#include <vector>

#include <doctest/doctest.h>

#include "nn/scope.h"
#include "tests/core/temporary_folder.h"

using minim::DType;
using minim::Shape;
using minim::Tensor;
using minim::nn::Init;
using minim::nn::ModelOptions;
using minim::nn::Scope;
using minim::test::error_of;

namespace {

double mean_of(const std::vector<double>& x) {
  return std::accumulate(x.begin(), x.end(), 0.0) / double(x.size());
}

double std_of(const std::vector<double>& x) {
  const double mean = mean_of(x);
  double sum = 0;
  for (double value : x)
    sum += (value - mean) * (value - mean);
  return std::sqrt(sum / double(x.size()));
}

}  // namespace

TEST_CASE("a path of children is the prefix of a parameter's name") {
  const Scope root;
  const Scope at = root / "distilbert" / "layer" / 3;
  CHECK(root.path() == "");
  CHECK(at.path() == "distilbert.layer.3");
  root.parameter("alone", {1}, Init::zeros());
  at.parameter("weight", {2}, Init::zeros());
  at.buffer("table", Tensor::zeros({5}));

  REQUIRE(root.parameters().size() == 2);
  CHECK(root.parameters()[0].name == "alone");
  CHECK(root.parameters()[1].name == "distilbert.layer.3.weight");
  CHECK(root.buffers()[0].name == "distilbert.layer.3.table");
  CHECK((root / "distilbert").parameters().size() == 1);
  // "lay" is a prefix of the text, not of the path.
  CHECK((root / "distilbert" / "lay").parameters().empty());
}

TEST_CASE("parameters are leaves that ask for a gradient, buffers are not") {
  const Scope root;
  CHECK(root.parameter("weight", {2}, Init::zeros()).requires_grad());
  CHECK_FALSE(root.buffer("table", Tensor::zeros({2})).requires_grad());
}

TEST_CASE("a second parameter or buffer of the same name is refused") {
  const Scope root;
  (root / "a").parameter("weight", {2, 3}, Init::zeros());
  const std::string text = "parameter: \"a.weight\" exists already with shape [2, 3]";
  CHECK(error_of([&] { (root / "a").parameter("weight", {4}, Init::ones()); }) == text);
  CHECK(error_of([&] { root.buffer("a.weight", Tensor::zeros({1})); }) == text);
}

TEST_CASE("constant initial values are exact") {
  const Scope root;
  CHECK(root.parameter("zeros", {3}, Init::zeros()).to_vector<float>() ==
        std::vector<float>{0, 0, 0});
  CHECK(root.parameter("ones", {3}, Init::ones()).to_vector<float>() ==
        std::vector<float>{1, 1, 1});
}

TEST_CASE("normal and uniform initial values have the moments asked for") {
  const Scope root;
  const int64_t n = 40000;
  const auto normal = root.parameter("normal", {200, 200}, Init::normal(0.02)).to_vector<double>();
  // The mean's standard error is 0.02 / 200 = 1e-4, the deviation's 0.02 / sqrt(2 n) = 7.1e-5; five
  // of them are allowed.
  CHECK(std::abs(mean_of(normal)) < 5e-4);
  CHECK(std::abs(std_of(normal) - 0.02) < 3.6e-4);
  // 0.0455 of a normal distribution lies beyond two deviations; not truncated.
  int64_t beyond = 0;
  for (double value : normal)
    beyond += std::abs(value) > 0.04;
  CHECK(std::abs(double(beyond) / double(n) - 0.0455) < 0.0055);

  const auto uniform = root.parameter("uniform", {n}, Init::uniform(0.5)).to_vector<double>();
  CHECK(std::abs(mean_of(uniform)) < 5 * 0.5 / std::sqrt(3.0 * double(n)));
  for (double value : uniform)
    REQUIRE(std::abs(value) <= 0.5);
}

TEST_CASE("initial values depend on seed and full name, not on what was made before") {
  const Scope one{ModelOptions{.seed = 7}}, other{ModelOptions{.seed = 7}};
  const Tensor first = (one / "a").parameter("weight", {4, 4}, Init::normal(1));
  (other / "b").parameter("weight", {9}, Init::normal(1));
  const Tensor second = (other / "a").parameter("weight", {4, 4}, Init::normal(1));
  CHECK(first.to_vector<float>() == second.to_vector<float>());

  const Scope reseeded{ModelOptions{.seed = 8}};
  CHECK(first.to_vector<float>() !=
        (reseeded / "a").parameter("weight", {4, 4}, Init::normal(1)).to_vector<float>());
  CHECK(first.to_vector<float>() !=
        (one / "c").parameter("weight", {4, 4}, Init::normal(1)).to_vector<float>());
}

TEST_CASE("f32 parameters hold the rounded numbers of f64 ones") {
  const Scope narrow, wide{ModelOptions{.dtype = DType::f64}};
  const Tensor a = narrow.parameter("weight", {50}, Init::normal(0.02));
  const Tensor b = wide.parameter("weight", {50}, Init::normal(0.02));
  CHECK(b.dtype() == DType::f64);
  CHECK(a.to_vector<float>() == b.to_vector<float>());
}

TEST_CASE("one row can be zeroed") {
  const Scope root;
  const auto rows =
      root.parameter("weight", {3, 2}, Init::normal(1).zero_row(1)).to_vector<float>();
  CHECK(rows[0] != 0);
  CHECK(rows[2] == 0);
  CHECK(rows[3] == 0);
  CHECK(rows[5] != 0);
}

TEST_CASE("sinusoidal rows are sines and cosines of position over 10000^(2 floor(j/2) / dim)") {
  const Scope root{ModelOptions{.dtype = DType::f64}};
  const auto table = root.parameter("weight", {3, 4}, Init::sinusoidal()).to_vector<double>();
  // dim 4: columns 0, 1 have frequency 1, columns 2, 3 have 10000^(-1/2) = 0.01.
  const std::vector<double> row_2 = {std::sin(2.0), std::cos(2.0), std::sin(0.02), std::cos(0.02)};
  for (size_t j = 0; j < 4; ++j) {
    CHECK(table[j] == double(j % 2));
    CHECK(std::abs(table[8 + j] - row_2[j]) < 1e-15);
  }
}

TEST_CASE("a source answers before the initial value does") {
  const Tensor stored = Tensor::full({2}, 5);
  const Scope root{ModelOptions{.source = [&](const std::string& name, const Shape&) {
    return name == "a.weight" ? stored : Tensor();
  }}};
  CHECK((root / "a").parameter("weight", {2}, Init::zeros()).to_vector<float>() ==
        std::vector<float>{5, 5});
  CHECK((root / "b").parameter("weight", {2}, Init::ones()).to_vector<float>() ==
        std::vector<float>{1, 1});
}

TEST_CASE("a source's tensor of another shape is refused") {
  const Scope root{
      ModelOptions{.source = [](const std::string&, const Shape&) { return Tensor::zeros({3}); }}};
  CHECK(error_of([&] { root.parameter("weight", {2}, Init::zeros()); }) ==
        "parameter: \"weight\" is [3] in the checkpoint, [2] in the model");
}

TEST_CASE("parameters are counted as weights") {
  using minim::memory::Category;
  const int64_t before = minim::memory::current(Category::weights);
  const Scope root;
  root.parameter("weight", {1000}, Init::zeros());
  CHECK(minim::memory::current(Category::weights) - before == 4000);
}
