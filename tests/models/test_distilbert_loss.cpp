#include "tests/models/distilbert_tiny.h"

// Which loss is chosen, its value and its gradients, against transformers.
using namespace minim;
using namespace minim::test;

namespace {

// The model of a case: regression_one brings its own classifier row.
DistilBertForSequenceClassification model_of(const std::string& name, DType dtype) {
  auto model = DistilBertForSequenceClassification::from_pretrained(
      tiny, {.labels = name == "regression_one" ? 1 : 3,
             .dtype = dtype,
             .ignore_mismatched_sizes = name == "regression_one"});
  if (name == "regression_one") {
    copy(model.classifier.weight, io().tensor(name + "/classifier.weight"));
    copy(model.classifier.bias, io().tensor(name + "/classifier.bias"));
  }
  if (name.starts_with("regression")) model.config.problem_type = "regression";
  model.eval();
  return model;
}

// Checks the gradients of all parameters that the reference has for a case.
void check_gradients(const DistilBertForSequenceClassification& model, const std::string& name,
                     double allowed) {
  int64_t compared = 0;
  for (const auto& [parameter, tensor] : model.parameters()) {
    const std::string key = name + "/f64/" + parameter;
    if (!gradients().contains(key)) continue;
    CAPTURE(key);
    REQUIRE(tensor.grad().defined());
    CHECK(worst_difference(tensor.grad(), gradients().tensor(key)) < allowed);
    ++compared;
  }
  CHECK(compared >= 4);
}

Tensor logits_2x3() {
  return Tensor::from<double>({2, 0, -1, 0, 1, 0.5}, {2, 3});
}

DistilBertForSequenceClassification small(int64_t labels, const std::string& problem_type = "") {
  DistilBertConfig config = DistilBertConfig::preset("tiny");
  config.vocab_size = 4;
  config.max_position_embeddings = 4;
  config.set_num_labels(labels);
  config.problem_type = problem_type;
  return DistilBertForSequenceClassification(config);
}

}  // namespace

TEST_CASE("cross-entropy of every case equals that of transformers") {
  for (const DType dtype : {DType::f32, DType::f64}) {
    const auto model = tiny_model(dtype);
    for (const std::string name : {"main", "holes", "left_padding", "no_mask", "batch_of_one",
                                   "cls_only", "cls_only_among_others", "full_length"}) {
      CAPTURE(name);
      const Tensor logits = model.forward(packed(name));
      const Tensor loss = model.loss(logits, labels_of(logits.size(0)));
      CHECK(worst_difference(loss, io().tensor(name + "/f64/loss")) < tolerance(dtype));
    }
  }
}

TEST_CASE("gradients of all parameters equal those of transformers") {
  for (const DType dtype : {DType::f32, DType::f64}) {
    for (const std::string name : {"main", "holes", "left_padding", "cls_only"}) {
      CAPTURE(name);
      const auto model = tiny_model(dtype);
      const PackedBatch batch = packed(name);
      model.loss(model.forward(batch), labels_of(batch.sequences())).backward();
      check_gradients(model, name, tolerance(dtype));
      const Tensor words = model.distilbert.embeddings.word_embeddings.weight.grad();
      CHECK(slice(words, 0, 0, 1).to_vector<double>() == std::vector<double>(32, 0));
      if (name != "main") continue;
      for (const auto& [parameter, tensor] : model.parameters()) {
        const auto& which = parameter;
        CAPTURE(which);
        CHECK(gradients().contains("main/f64/" + parameter));
      }
    }
  }
}

TEST_CASE("regression, multi-label and ignored labels equal transformers, gradients too") {
  for (const DType dtype : {DType::f32, DType::f64}) {
    for (const std::string name :
         {"regression_one", "regression_three", "multi_label", "ignored_label"}) {
      CAPTURE(name);
      const auto model = model_of(name, dtype);
      const Tensor logits = model.forward(packed("main"));
      CHECK(worst_difference(logits, io().tensor(name + "/f64/logits")) < tolerance(dtype));
      const Tensor loss = model.loss(logits, io().tensor(name + "/labels"));
      CHECK(worst_difference(loss, io().tensor(name + "/f64/loss")) < tolerance(dtype));
      loss.backward();
      check_gradients(model, name, tolerance(dtype));
    }
  }
}

TEST_CASE("a batch whose labels are all ignored has loss 0 and zero gradients") {
  const auto model = tiny_model();
  const Tensor loss = model.loss(model.forward(packed("main")), io().tensor("all_ignored/labels"));
  CHECK(loss.item() == 0);
  loss.backward();
  for (const auto& [name, parameter] : model.parameters()) {
    const auto& which = name;
    CAPTURE(which);
    REQUIRE(parameter.grad().defined());
    CHECK(sum(square(parameter.grad())).item() == 0);
  }
}

TEST_CASE("where the config is silent the labels choose the loss") {
  // By hand from the logits [[2, 0, -1], [0, 1, 0.5]].
  const double by_class = (std::log(std::exp(2) + 1 + std::exp(-1)) - 2 +
                           std::log(1 + std::exp(1) + std::exp(0.5)) - 0.5) /
                          2;
  const auto three = small(3);
  CHECK(std::abs(three.loss(logits_2x3(), Tensor::from<int64_t>({0, 2}, {2})).item() - by_class) <
        1e-14);
  CHECK(std::abs(three.loss(logits_2x3(), Tensor::from<int32_t>({0, 2}, {2})).item() - by_class) <
        1e-14);

  const Tensor pair = Tensor::from<double>({1, -2, 0, 3}, {2, 2});
  CHECK(std::abs(small(2).loss(pair, Tensor::from<float>({1, 0, 1, 1}, {2, 2})).item() -
                 0.2954810576737207) < 1e-14);

  // ((1 - 0)^2 + (3 - 1)^2) / 2
  const Tensor column = Tensor::from<double>({1, 3}, {2, 1});
  CHECK(small(1).loss(column, Tensor::from<float>({0, 1}, {2})).item() == 2.5);
  CHECK(small(1).loss(column, Tensor::from<float>({0, 1}, {2, 1})).item() == 2.5);
}

TEST_CASE("an explicit problem type wins, and class ids may be targets") {
  CHECK(small(1, "regression")
            .loss(Tensor::from<double>({1, 3}, {2, 1}), Tensor::from<int64_t>({0, 1}, {2}))
            .item() == 2.5);
  CHECK(std::abs(small(2, "multi_label_classification")
                     .loss(Tensor::from<double>({1, -2, 0, 3}, {2, 2}),
                           Tensor::from<int64_t>({1, 0, 1, 1}, {2, 2}))
                     .item() -
                 0.2954810576737207) < 1e-14);
}

TEST_CASE("labels that do not fit are refused in a sentence") {
  const Tensor column = Tensor::zeros({2, 1});
  CHECK(error_of([&] {
          small(1).loss(column, Tensor::from<int64_t>({0, 1}, {2}));
        }) ==
        "loss: the model has one label and the targets are class ids; set problem_type to "
        "regression to fit them as numbers");
  CHECK(error_of([&] {
          small(1, "single_label_classification").loss(column, Tensor::from<int64_t>({0, 0}, {2}));
        }) == "loss: cross-entropy over one class is always 0; use regression or more labels");
  CHECK(error_of([&] {
          small(3).loss(logits_2x3(), Tensor::from<int64_t>({0, 1, 2}, {3}));
        }) == "loss: classification of logits [2, 3] needs class ids [2], got i64 [3]");
  CHECK(error_of([&] {
          small(3, "single_label_classification")
              .loss(logits_2x3(), Tensor::from<float>({0, 1}, {2}));
        }) == "loss: classification of logits [2, 3] needs class ids [2], got f32 [2]");
  // As many numbers, but another shape.
  CHECK(error_of([&] {
          small(3).loss(logits_2x3(), Tensor::zeros({3, 2}));
        }) == "loss: multi_label_classification targets [3, 2] do not fit logits [2, 3]");
  CHECK(error_of([&] {
          small(1).loss(column, Tensor::zeros({1, 2}));
        }) == "loss: regression targets [1, 2] do not fit logits [2, 1]");
  CHECK(error_of([&] {
          small(3).loss(logits_2x3(), Tensor::from<int64_t>({0, 3}, {2}));
        }) == "cross_entropy: target 3 of row 1 is outside the 3 classes");
}
