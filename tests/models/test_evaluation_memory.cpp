// What an evaluation takes, predicted from the config and measured in a real one.
#include <doctest/doctest.h>

#include "tests/models/memory_case.h"
#include "train/evaluator.h"

using namespace minim;
using namespace minim::test;
using memory::Category;
using models::BatchShape;

namespace {

// An evaluation of 7 rows of 11 tokens, 3 at a time.
void check_evaluation(const MemoryCase& c, bool keeps_logits, double label_smoothing = 0) {
  CAPTURE(c.what);
  CAPTURE(c.autocast ? name_of(*c.autocast) : "f32");
  CAPTURE(keeps_logits);
  CAPTURE(label_smoothing);
  models::DistilBertForSequenceClassification model(config_of(c));
  model.gradient_checkpointing_enable();  // which is for training
  const text::Examples examples =
      make_examples(model.config, std::vector<int64_t>(7, 11), c.token_types);
  train::ComputeMetrics metrics;
  if (keeps_logits)
    metrics = c.problem_type == "multi_label_classification"    ? train::multi_label_metrics
              : c.problem_type == "regression" || c.labels == 1 ? train::regression_metrics
                                                                : train::classification_metrics;
  const train::Evaluator evaluator(model, 3, metrics, c.autocast, label_smoothing);
  // Parameters in autocast's dtype come with the first evaluation.
  const int64_t weights = memory::current(Category::weights);
  evaluator.predict(examples);
  const int64_t activations = memory::current(Category::activations);
  const int64_t data = memory::current(Category::data), all = memory::current();
  const int64_t workspace = memory::current(Category::workspace);
  memory::reset_peak();
  evaluator.evaluate(examples);
  BatchShape shape = BatchShape::uniform(3, 11);
  shape.token_types = c.token_types;
  const models::EvaluationMemory predicted = models::rehearse_evaluation(
      model, shape, 7, {.autocast = c.autocast, .keeps_logits = keeps_logits});
  CHECK(predicted.activations == memory::peak(Category::activations) - activations);
  CHECK(predicted.workspace == memory::peak(Category::workspace) - workspace);
  CHECK(predicted.data == memory::peak(Category::data) - data);
  CHECK(predicted.casts == memory::peak(Category::weights) - weights);
  CHECK(predicted.together == memory::peak() - all);
}

}  // namespace

TEST_CASE("an evaluation is predicted to the byte") {
  std::vector<MemoryCase> cases = {
      {"as it is", "", {}, 2},
      {"one layer and pairs", "n_layers=1", {}, 2, "", true},
      {"more logits than activations", "n_layers=1,dim=4,hidden_dim=4", {}, 300},
      {"regression", "", {}, 1},
      {"many numbers", "n_layers=1,dim=4,hidden_dim=4", {}, 300, "", false, 1, "regression"},
      {"multi-label", "", {}, 300, "", false, 1, "multi_label_classification"},
      {"multi-label: losses in parts", "", {}, 3000, "", false, 1, "multi_label_classification"}};
  for (MemoryCase& c : cases)
    for (const std::optional<DType> autocast :
         {std::optional<DType>(), std::optional(DType::bf16), std::optional(DType::f16)})
      for (const bool keeps_logits : {true, false}) {
        c.autocast = autocast;
        check_evaluation(c, keeps_logits);
        if (c.problem_type.empty() && c.labels > 1) check_evaluation(c, keeps_logits, 0.1);
      }
  // What batches leave behind does not grow with the rows.
  const auto model = models::model_without_weights(config_of({"", "", {}}));
  const auto rows = [&](int64_t n, bool keeps_logits) {
    return models::rehearse_evaluation(model, BatchShape::uniform(3, 11), n,
                                       {.keeps_logits = keeps_logits})
        .together;
  };
  CHECK(rows(1'000'000, false) == rows(3, false));
  CHECK(rows(1'000'003, true) - rows(3, true) == 1'000'000 * 2 * 4);
}
