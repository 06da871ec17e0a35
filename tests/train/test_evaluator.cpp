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

TEST_CASE("label smoothing is in eval_loss, and the loss without it stands beside") {
  const auto model = small_model();
  const text::Examples set = small_set(11);
  const train::Evaluation smoothed =
      Evaluator(model, 4, train::classification_metrics, {}, 0.1).evaluate(set);
  // transformers' LabelSmoother: 0.9 (-log p[label]) + 0.1 times the mean over classes of -log p.
  const auto logits = smoothed.prediction.predictions.to_vector<double>();
  const auto labels = set.labels.to_vector<int64_t>();
  double plain = 0, expected = 0;
  for (size_t i = 0; i < labels.size(); ++i) {
    const double a = logits[2 * i], b = logits[2 * i + 1];
    const double log_sum = std::log(std::exp(a) + std::exp(b));
    const double own = log_sum - (labels[i] == 0 ? a : b);
    plain += own / 11;
    expected += (0.9 * own + 0.1 * (2 * log_sum - a - b) / 2) / 11;
  }
  CHECK(value_of(smoothed.metrics, "eval_loss") == doctest::Approx(expected).epsilon(1e-12));
  CHECK(value_of(smoothed.metrics, "eval_unsmoothed_loss") ==
        doctest::Approx(plain).epsilon(1e-12));
}

TEST_CASE("rows without a label count for nothing in the evaluation loss") {
  const auto model = small_model();
  text::Examples set = small_set(8), labelled = {};
  auto labels = set.labels.to_vector<int64_t>();
  for (size_t i = 2; i < 8; ++i)
    labels[i] = -100;  // batches of three: one with two labels, two with none
  set.labels = Tensor::from(labels, {8});
  labelled.sequences = {set.sequences[0], set.sequences[1]};
  labelled.labels = Tensor::from<int64_t>({labels[0], labels[1]}, {2});
  const auto loss = [&](const text::Examples& of, int64_t batch_size) {
    return value_of(Evaluator(model, batch_size, nullptr).evaluate(of).metrics, "eval_loss");
  };
  CHECK(loss(set, 3) == doctest::Approx(loss(labelled, 2)).epsilon(1e-6));
  set.labels = Tensor::from<int64_t>(std::vector<int64_t>(8, -100), {8});
  CHECK(loss(set, 3) == 0);
}

TEST_CASE("the loss alone is evaluated without keeping logits") {
  const auto model = small_model();
  const train::Evaluation evaluation = Evaluator(model, 4, nullptr).evaluate(small_set(11));
  CHECK(names_of(evaluation.metrics) == std::vector<std::string>{"eval_loss", "eval_runtime",
                                                                 "eval_samples_per_second",
                                                                 "eval_steps_per_second"});
  CHECK(!evaluation.prediction.predictions.defined());
  // Those of 1,000 rows would be 8,000 bytes.
  const text::Examples many = small_set(1000);
  const auto peak = [&](const train::ComputeMetrics& metrics) {
    const int64_t before = memory::current(memory::Category::data);
    memory::reset_peak();
    Evaluator(model, 4, metrics).evaluate(many);
    return memory::peak(memory::Category::data) - before;
  };
  CHECK(peak(nullptr) < 2000);
  CHECK(peak(train::classification_metrics) >= 8000);
  const Metrics whole =
      Evaluator(model, 4, train::classification_metrics).evaluate(small_set(11)).metrics;
  CHECK(value_of(evaluation.metrics, "eval_loss") == value_of(whole, "eval_loss"));
  Run run({.max_steps = 1,
           .eval_strategy = IntervalStrategy::epoch,
           .prediction_loss_only = true,
           .metric_for_best_model = "accuracy"},
          8, 8);
  CHECK(error_of([&] { run.trainer.train(); })
            .starts_with("metric_for_best_model: there is no \"eval_accuracy\"; there are "
                         "eval_loss, eval_runtime"));
}

TEST_CASE("predictions that are all of one class are told, beside what that is worth") {
  const auto warning = [](const std::vector<float>& logits, const std::vector<int64_t>& labels) {
    const auto rows = int64_t(labels.size());
    return train::collapse_warning({Tensor::from(logits, {rows, 2}), Tensor::from(labels, {rows})},
                                   {"ham", "spam"});
  };
  CHECK(warning({0, 1, 0, 1, 0, 1}, {0, 0, 1}) ==
        "all 3 rows are predicted to be \"spam\", which 33.3 % of them are; always answering "
        "\"ham\" has an accuracy of 0.6667; a lower learning rate or a longer warm-up often "
        "helps, class weights where a class is rare");
  CHECK(warning({0, 1, 0, 1, 1, 0}, {0, 0, 1}).empty());  // both are predicted
  CHECK(warning({0, 1, 0, 1}, {1, 1}).empty());           // and rightly so
  CHECK(warning({0, NAN, 0, 1}, {0, 1}).empty());
  CHECK(warning({0, 1, 0, 1}, {-100, -100}).empty());
  // Numbers are no classes, whole ones neither.
  CHECK(
      train::collapse_warning({Tensor::full({2, 1}, 1), Tensor::from<int64_t>({3, 4}, {2})}, {"x"})
          .empty());
  CHECK(train::collapse_warning({Tensor::full({2, 1}, 1), Tensor::full({2}, 1)}, {"x"}).empty());
}

TEST_CASE("a Trainer tells of such predictions once, and not before the first update") {
  struct Warnings : train::TrainerCallback {
    void on_warning(const TrainerState& state, const std::string& sentence) override {
      steps.push_back(state.global_step);
      CHECK(sentence.starts_with("evaluation at step 1: all 8 rows are predicted to be "));
    }
    std::vector<int64_t> steps;
  };
  // Without a rate the weights stay as they are: the bias alone decides.
  Run run({.max_steps = 3,
           .learning_rate = 0,
           .eval_strategy = IntervalStrategy::steps,
           .eval_steps = 1,
           .eval_on_start = true},
          8, 8);
  run.model.classifier.bias.values<float>()[1] = 100;
  const auto warnings = std::make_shared<Warnings>();
  run.trainer.add_callback(warnings);
  run.trainer.train();
  CHECK(warnings->steps == std::vector<int64_t>{1});
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
