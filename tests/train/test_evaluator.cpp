#include <cmath>

#include "autograd/node.h"
#include "tests/train/small_model.h"
#include "train/evaluator.h"

using namespace minim;
using namespace minim::test;
using train::Evaluator;

TEST_CASE("the evaluation loss is the mean over rows, in f64, whatever the batches") {
  const auto model = small_model(0.5);
  const text::Examples set = small_set(11);
  const auto evaluate = [&](int64_t batch_size) {
    return Evaluator(model, batch_size, train::classification_metrics).evaluate(set);
  };
  const train::Evaluation whole = evaluate(11);
  // Two classes: the loss of a row is log(1 + exp(other - own)).
  const auto logits = whole.prediction.predictions.to_vector<double>();
  const auto labels = set.labels.to_vector<int64_t>();
  double total = 0;
  for (size_t i = 0; i < labels.size(); ++i) {
    const double own = logits[2 * i + size_t(labels[i])];
    total += std::log1p(std::exp(logits[2 * i + 1 - size_t(labels[i])] - own));
  }
  const double loss = value_of(whole.metrics, "eval_loss");
  CHECK(loss == doctest::Approx(total / 11).epsilon(1e-13));
  // 4 + 4 + 3 rows: the mean of the means would differ. Logits of a row depend on its batch by
  // rounding alone.
  CHECK(value_of(evaluate(4).metrics, "eval_loss") == doctest::Approx(loss).epsilon(1e-6));
  CHECK(value_of(evaluate(1).metrics, "eval_loss") == doctest::Approx(loss).epsilon(1e-6));
}

TEST_CASE("evaluation reports metrics and speed, with Hugging Face's names") {
  const auto model = small_model();
  const Metrics metrics =
      Evaluator(model, 4, train::classification_metrics).evaluate(small_set(11)).metrics;
  CHECK(names_of(metrics) ==
        std::vector<std::string>{"eval_loss", "eval_accuracy", "eval_precision", "eval_recall",
                                 "eval_f1", "eval_mcc", "eval_runtime", "eval_samples_per_second",
                                 "eval_steps_per_second"});
  const double seconds = value_of(metrics, "eval_runtime");
  CHECK(value_of(metrics, "eval_samples_per_second") == doctest::Approx(11 / seconds));
  CHECK(value_of(metrics, "eval_steps_per_second") == doctest::Approx(3 / seconds));
}

TEST_CASE("evaluation drops nothing out and leaves the mode as it was") {
  const auto model = small_model(0.5);
  const Evaluator evaluator(model, 4, train::classification_metrics);
  const text::Examples set = small_set(6);
  for (bool training : {true, false}) {
    model.train(training);
    const auto once = evaluator.predict(set).predictions.to_vector<float>();
    const uint64_t drawn = model.generator().offset;
    CHECK(evaluator.predict(set).predictions.to_vector<float>() == once);
    CHECK(model.generator().offset == drawn);
    CHECK(model.training() == training);
  }
  model.train();
  CHECK_THROWS(Evaluator(model, 4, [](const train::EvalPrediction&) -> Metrics {
                 throw Error("a metric that fails");
               }).evaluate(set));
  CHECK(model.training());
}

TEST_CASE("a Trainer's own evaluation does not change what is learnt") {
  const auto weights = [](IntervalStrategy strategy) {
    Run run({.per_device_train_batch_size = 4,
             .num_train_epochs = 2,
             .learning_rate = 1e-3,
             .eval_strategy = strategy,
             .logging_steps = 1},
            20, 6, 0.3);
    run.trainer.train();
    return run.weights();
  };
  CHECK(weights(IntervalStrategy::steps) == weights(IntervalStrategy::no));
}

TEST_CASE("evaluation needs rows and labels; prediction only rows") {
  const auto model = small_model();
  const Evaluator evaluator(model, 4, train::classification_metrics);
  text::Examples unlabelled = small_set(5);
  unlabelled.labels = Tensor();
  CHECK(error_of([&] { evaluator.evaluate({}); }) == "evaluate: there is no data");
  CHECK(error_of([&] { evaluator.evaluate(unlabelled); }) == "evaluate: the data has no labels");
  const train::EvalPrediction prediction = evaluator.predict(unlabelled);
  CHECK(prediction.predictions.shape() == Shape{5, 2});
  CHECK(!prediction.label_ids.defined());
}
