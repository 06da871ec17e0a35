#include "autograd/autocast.h"
#include "optim/adamw.h"
#include "optim/clip.h"
#include "optim/parameter_group.h"
#include "tests/models/distilbert_tiny.h"

// The small model in mixed precision, against its results in transformers in full precision.
namespace minim::test {
namespace {

double length(const Tensor& x) {
  double sum = 0;
  for (const double value : x.to_vector<double>())
    sum += value * value;
  return std::sqrt(sum);
}

// Of a tensor whose every element passed some tens of roundings to 8 or 11 bits, which are as often
// up as down: eight half units in the last place.
double relative_tolerance(DType dtype) {
  return dtype == DType::bf16 ? 8 * 0x1p-9 : 8 * 0x1p-12;
}

Tensor loss_under(const DistilBertForSequenceClassification& model, std::optional<DType> dtype) {
  const Autocast precision(dtype);
  return model.loss(model.forward(packed("main")), labels_of(4));
}

TEST_CASE("logits under autocast are the references' within its rounding") {
  const auto model = tiny_model();
  const Tensor expected = io().tensor("main/f64/logits");
  for (const DType dtype : {DType::bf16, DType::f16}) {
    const Autocast precision(dtype);
    const Tensor logits = model.forward(packed("main"));
    CHECK(logits.dtype() == dtype);
    CHECK(length(to(logits, DType::f64) - expected) < relative_tolerance(dtype) * length(expected));
  }
}

TEST_CASE("gradients under autocast are f32, and the references' within its rounding") {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    const auto model = tiny_model();
    loss_under(model, dtype).backward();
    double largest = 0;
    for (const auto& [name, parameter] : model.parameters())
      largest = std::max(largest, length(parameter.grad()));
    for (const auto& [name, parameter] : model.parameters()) {
      const auto& which = name;
      CAPTURE(which);
      CHECK(parameter.dtype() == DType::f32);
      REQUIRE(parameter.grad().dtype() == DType::f32);
      const Tensor expected = convert(gradients().tensor("main/f64/" + name), DType::f64);
      const Tensor difference = to(parameter.grad(), DType::f64) - expected;
      // Sums in which terms cancel keep the rounding of the terms: a hundredth of the largest.
      CHECK(length(difference) <
            3 * relative_tolerance(dtype) * (length(expected) + largest / 100));
    }
  }
}

TEST_CASE("ten updates in bf16 and f16 stay near those in f32") {
  const auto losses_in = [](std::optional<DType> dtype) {
    const auto model = tiny_model();
    optim::AdamW adamw(optim::decay_groups(model, 0.01), {.lr = 1e-3});
    std::vector<double> losses;
    for (int i = 0; i < 10; ++i) {
      const Tensor loss = loss_under(model, dtype);
      loss.backward();
      optim::clip_grad_norm(model.parameters(), 1.0);
      adamw.step();
      adamw.zero_grad();
      losses.push_back(loss.item());
    }
    return losses;
  };
  const std::vector<double> plain = losses_in(std::nullopt);
  CHECK(plain.back() < plain.front());
  for (const DType dtype : {DType::bf16, DType::f16}) {
    const std::vector<double> mixed = losses_in(dtype);
    for (size_t i = 0; i < plain.size(); ++i)
      CHECK(std::abs(mixed[i] - plain[i]) < 3 * relative_tolerance(dtype) * plain.front());
  }
}

TEST_CASE("evaluation under autocast follows the parameters after each update") {
  const auto model = tiny_model();
  const NoGrad no_grad;
  const double before = loss_under(model, DType::bf16).item();
  fill(model.classifier.weight, 0);
  CHECK(loss_under(model, DType::bf16).item() != before);
}

TEST_CASE("regression targets keep their precision under autocast") {
  auto model = tiny_model();
  model.config.problem_type = "regression";
  const Autocast precision(DType::bf16);
  const Tensor logits = Tensor::zeros({1, model.config.num_labels()}, DType::bf16);
  const Tensor targets = Tensor::full(logits.shape(), 1.001, DType::f32);  // 1 in bf16
  CHECK(model.loss(logits, targets).item() == doctest::Approx(1.001 * 1.001).epsilon(1e-6));
}

}  // namespace
}  // namespace minim::test
