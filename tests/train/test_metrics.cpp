#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "train/metrics.h"

using namespace minim;
using namespace minim::train;
using nlohmann::json;
using Ints = std::vector<int64_t>;
using Doubles = std::vector<double>;

namespace {

// Both sides compute in double from exact counts, or from numbers of three decimals.
constexpr double tolerance = 1e-12;

json reference_cases() {
  std::ifstream file(MINIM_TEST_DATA "/metrics/metrics.json");
  REQUIRE(file);
  return json::parse(file).at("cases");
}

void check_close(double ours, const json& reference) {
  if (reference == "nan")
    CHECK(std::isnan(ours));
  else
    CHECK(std::abs(ours - reference.get<double>()) <= tolerance);
}

void check_scores(const Scores& ours, const json& reference) {
  check_close(ours.precision, reference.at("precision"));
  check_close(ours.recall, reference.at("recall"));
  check_close(ours.f1, reference.at("f1"));
}

double value_of(const Metrics& metrics, const std::string& name) {
  const auto at = std::ranges::find(metrics, name, &Metrics::value_type::first);
  REQUIRE(at != metrics.end());
  return at->second;
}

// Logits whose largest entry is the predicted class.
EvalPrediction as_logits(const Ints& labels, const Ints& predicted, int64_t classes) {
  std::vector<float> logits(predicted.size() * size_t(classes), -1.5f);
  for (size_t i = 0; i < predicted.size(); ++i)
    logits[i * size_t(classes) + size_t(predicted[i])] = 0.25f;
  const int64_t rows = int64_t(labels.size());
  return {Tensor::from(logits, {rows, classes}), Tensor::from(labels, {rows})};
}

// 0/1 matrices of a multi-label case; logits are negative for 0 and positive for 1.
EvalPrediction multi_label_case(const json& rows, const json& predicted, bool transposed = false) {
  const int64_t n = int64_t(rows.size()), m = int64_t(rows[0].size());
  std::vector<float> targets, logits;
  for (int64_t i = 0; i < (transposed ? m : n); ++i) {
    for (int64_t j = 0; j < (transposed ? n : m); ++j) {
      const size_t row = size_t(transposed ? j : i), label = size_t(transposed ? i : j);
      targets.push_back(rows[row][label].get<float>());
      logits.push_back(predicted[row][label] == 1 ? 0.5f : -0.5f);
    }
  }
  const Shape shape = transposed ? Shape{m, n} : Shape{n, m};
  return {Tensor::from(logits, shape), Tensor::from(targets, shape)};
}

}  // namespace

TEST_CASE("single-label metrics equal scikit-learn's") {
  int compared = 0;
  for (const json& c : reference_cases()) {
    if (!c.contains("labels") || c.at("true").empty()) continue;
    CAPTURE(c.at("name").get<std::string>());
    const int64_t classes = int64_t(c.at("labels").size());
    const EvalPrediction p = as_logits(c.at("true"), c.at("predicted"), classes);
    const ConfusionMatrix matrix = confusion_matrix(p);
    for (int64_t i = 0; i < classes; ++i) {
      for (int64_t j = 0; j < classes; ++j)
        CHECK(matrix.count(i, j) == c.at("confusion")[size_t(i)][size_t(j)].get<int64_t>());
      const json& per_class = c.at("per_class");
      check_close(matrix.of_class(i).precision(), per_class.at("precision")[size_t(i)]);
      check_close(matrix.of_class(i).recall(), per_class.at("recall")[size_t(i)]);
      check_close(matrix.of_class(i).f1(), per_class.at("f1")[size_t(i)]);
    }
    check_close(matrix.accuracy(), c.at("accuracy"));
    check_close(matrix.balanced_accuracy(), c.at("balanced_accuracy"));
    check_close(matrix.mcc(), c.at("mcc"));
    check_scores(matrix.scores(Average::micro), c.at("micro"));
    check_scores(matrix.scores(Average::macro), c.at("macro"));
    check_scores(matrix.scores(Average::weighted), c.at("weighted"));
    if (c.contains("binary")) check_scores(matrix.scores(Average::binary), c.at("binary"));
    check_close(matrix.scores(Average::macro_present).f1,
                c.at("macro_over_present_classes").at("f1"));

    const Metrics metrics = classification_metrics(p);
    check_close(value_of(metrics, "accuracy"), c.at("accuracy"));
    check_close(value_of(metrics, "mcc"), c.at("mcc"));
    const json& average = c.at(classes == 2 ? "binary" : "macro");
    check_close(value_of(metrics, "precision"), average.at("precision"));
    check_close(value_of(metrics, "recall"), average.at("recall"));
    check_close(value_of(metrics, "f1"), average.at("f1"));
    check_close(value_of(averaged_metrics(p, Average::weighted), "f1"), c.at("weighted").at("f1"));
    ++compared;
  }
  CHECK(compared == 20);
}

TEST_CASE("multi-label metrics equal scikit-learn's") {
  int compared = 0;
  for (const json& c : reference_cases()) {
    if (!c.contains("multi_label")) continue;
    CAPTURE(c.at("name").get<std::string>());
    const EvalPrediction p = multi_label_case(c.at("true"), c.at("predicted"));
    const std::vector<ClassCounts> counts = multi_label_counts(p);
    check_scores(average_scores(counts, Average::micro), c.at("micro"));
    check_scores(average_scores(counts, Average::macro), c.at("macro"));
    check_scores(average_scores(counts, Average::weighted), c.at("weighted"));
    // The average over samples is the macro average with rows and labels exchanged.
    const EvalPrediction exchanged = multi_label_case(c.at("true"), c.at("predicted"), true);
    check_scores(average_scores(multi_label_counts(exchanged), Average::macro), c.at("samples"));

    const Metrics metrics = multi_label_metrics(p);
    check_close(value_of(metrics, "accuracy"), c.at("subset_accuracy"));
    check_close(value_of(metrics, "f1"), c.at("micro").at("f1"));
    ++compared;
  }
  CHECK(compared == 2);
}

TEST_CASE("regression metrics equal scikit-learn's and scipy's") {
  int compared = 0;
  for (const json& c : reference_cases()) {
    if (!c.contains("regression")) continue;
    CAPTURE(c.at("name").get<std::string>());
    const Doubles targets = c.at("true"), predicted = c.at("predicted");
    const int64_t rows = int64_t(targets.size());
    const Metrics metrics =
        regression_metrics({Tensor::from(predicted, {rows, 1}), Tensor::from(targets, {rows})});
    check_close(value_of(metrics, "mse"), c.at("mse"));
    check_close(value_of(metrics, "mae"), c.at("mae"));
    check_close(value_of(metrics, "pearson"), c.at("pearson"));
    check_close(value_of(metrics, "spearman"), c.at("spearman"));
    ++compared;
  }
  CHECK(compared == 4);
}

TEST_CASE("metrics of no rows are refused in one sentence") {
  const EvalPrediction none = as_logits({}, {}, 2);
  CHECK_THROWS_WITH_AS(classification_metrics(none),
                       "classification_metrics: none of 0 rows has a label, at least 1 is needed",
                       Error);
  const EvalPrediction unlabelled = as_logits({-1, -100, -1}, {0, 1, 1}, 2);
  CHECK_THROWS_WITH_AS(classification_metrics(unlabelled),
                       "classification_metrics: none of 3 rows has a label, at least 1 is needed",
                       Error);
  const EvalPrediction no_numbers = {Tensor::empty({0, 1}), Tensor::empty({0, 1})};
  CHECK_THROWS_WITH_AS(multi_label_metrics(no_numbers),
                       "multi_label_metrics: no rows given, at least 1 is needed", Error);
  CHECK_THROWS_WITH_AS(regression_metrics(no_numbers),
                       "regression_metrics: no rows given, at least 1 is needed", Error);
}

TEST_CASE("unlabelled rows do not count") {
  const EvalPrediction all = as_logits({1, -1, 0, -100, 1}, {1, 0, 1, 1, 0}, 2);
  const EvalPrediction labelled = as_logits({1, 0, 1}, {1, 1, 0}, 2);
  CHECK(confusion_matrix(all).total() == 3);
  CHECK(classification_metrics(all) == classification_metrics(labelled));
}

TEST_CASE("equal logits predict the lowest class") {
  const EvalPrediction p = {Tensor::from<float>({2, 2, 1, 0, 3, 3, 1, 1, 1}, {3, 3}),
                            Tensor::from<int64_t>({0, 1, 0}, {3})};
  CHECK(value_of(classification_metrics(p), "accuracy") == 1);
}

TEST_CASE("labels of any integer type and logits of any floating type are read") {
  const EvalPrediction p = {convert(Tensor::from<float>({0, 1, 1, 0}, {2, 2}), DType::bf16),
                            Tensor::from<int32_t>({1, 1}, {2})};
  CHECK(value_of(classification_metrics(p), "accuracy") == 0.5);
}

TEST_CASE("a multi-label logit of exactly 0 predicts nothing") {
  // sigmoid(0) = 0.5, and Hugging Face asks for more than that.
  const EvalPrediction p = {Tensor::from<float>({0, 1e-6f}, {1, 2}),
                            Tensor::from<float>({0, 1}, {1, 2})};
  CHECK(value_of(multi_label_metrics(p), "accuracy") == 1);
}

TEST_CASE("correlations do not depend on scale and offset") {
  std::mt19937 random(17);
  std::normal_distribution<double> normal;
  Doubles x, y, moved, cubed;
  for (int i = 0; i < 50; ++i) {
    x.push_back(normal(random));
    y.push_back(x.back() + normal(random));
    moved.push_back(1000 - 3 * y.back());
    cubed.push_back(y.back() * y.back() * y.back());
  }
  // An offset of 1000 costs three of sixteen digits.
  CHECK(pearson(x, moved) == doctest::Approx(-pearson(x, y)).epsilon(1e-11));
  CHECK(pearson(x, y) == doctest::Approx(pearson(y, x)).epsilon(tolerance));
  CHECK(spearman(x, cubed) == spearman(x, y));  // a rising function keeps the ranks
  CHECK(pearson(x, x) == doctest::Approx(1).epsilon(tolerance));
  CHECK(pearson(x, x) <= 1);
}

TEST_CASE("correlations of constant or single numbers are NaN") {
  CHECK(std::isnan(pearson(Doubles{0.1, 0.1, 0.1}, Doubles{1, 2, 3})));
  CHECK(std::isnan(spearman(Doubles{1, 2, 3}, Doubles{0.1, 0.1, 0.1})));
  CHECK(std::isnan(pearson(Doubles{1}, Doubles{2})));
  CHECK(std::isnan(pearson(Doubles{}, Doubles{})));
}

TEST_CASE("several regression columns count equally") {
  // Columns (1, 2, 3) against (1, 2, 3) and (3, 2, 1): correlations 1 and -1; squares 0 and 4 0 4.
  const EvalPrediction p = {Tensor::from<float>({1, 1, 2, 2, 3, 3}, {3, 2}),
                            Tensor::from<float>({1, 3, 2, 2, 3, 1}, {3, 2})};
  const Metrics metrics = regression_metrics(p);
  CHECK(value_of(metrics, "mse") == doctest::Approx(8.0 / 6));
  CHECK(value_of(metrics, "mae") == doctest::Approx(4.0 / 6));
  CHECK(std::abs(value_of(metrics, "pearson")) < tolerance);
  CHECK(std::abs(value_of(metrics, "spearman")) < tolerance);
}

TEST_CASE("input that does not fit is refused in one sentence") {
  const Tensor logits = Tensor::zeros({2, 3});
  const Tensor wrong_labels = Tensor::from<int64_t>({0, 3}, {2});
  CHECK_THROWS_WITH_AS(confusion_matrix({logits, wrong_labels}),
                       "classification_metrics: label 3 of row 1 must lie in 0..2 (or be -1 or "
                       "-100, which leaves the row out)",
                       Error);
  CHECK_THROWS_WITH_AS(confusion_matrix({logits, Tensor::zeros({3}, DType::i64)}),
                       "classification_metrics: label_ids [3] must be [2], one for each row of the "
                       "predictions [2, 3]",
                       Error);
  CHECK_THROWS_WITH_AS(confusion_matrix({logits, Tensor::zeros({2})}),
                       "classification_metrics: label_ids are f32, they must be integers", Error);
  CHECK_THROWS_WITH_AS(confusion_matrix({Tensor::zeros({2}), wrong_labels}),
                       "classification_metrics: predictions [2] must be [rows, labels]", Error);
  CHECK_THROWS_WITH_AS(confusion_matrix({logits, Tensor()}),
                       "classification_metrics: predictions and label_ids must both be given",
                       Error);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  CHECK_THROWS_WITH_AS(confusion_matrix({Tensor::from<float>({0, 1, nan, 2}, {2, 2}),
                                         Tensor::zeros({2}, DType::i64)}),
                       "classification_metrics: the prediction at [1, 0] is NaN", Error);
  CHECK_THROWS_WITH_AS(
      regression_metrics({Tensor::from<float>({1, nan}, {2, 1}), Tensor::zeros({2})}),
      "regression_metrics: the prediction at [1, 0] is NaN", Error);
  CHECK_THROWS_WITH_AS(
      multi_label_metrics({Tensor::zeros({1, 2}), Tensor::from<float>({0, 0.5f}, {1, 2})}),
      "multi_label_metrics: target 0.5 at [0, 1] must be 0 or 1", Error);
}

TEST_CASE("metrics are written as a Python dict of floats") {
  CHECK(format_metrics({}) == "{}");
  CHECK(format_metrics({{"eval_loss", 0.63121}, {"eval_accuracy", 0.67}, {"epoch", 1}}) ==
        "{'eval_loss': 0.6312, 'eval_accuracy': 0.67, 'epoch': 1.0}");
  const auto number = [](double value) {
    const std::string line = format_metrics({{"x", value}});
    return line.substr(6, line.size() - 7);
  };
  // What Python prints for these floats, after rounding.
  CHECK(number(0) == "0.0");
  CHECK(number(-1.0) == "-1.0");
  CHECK(number(5e-5) == "5e-05");
  CHECK(number(4.98765e-5) == "4.988e-05");
  CHECK(number(0.00012346) == "0.0001235");
  CHECK(number(0.99999) == "1.0");
  CHECK(number(1.0 / 3) == "0.3333");
  CHECK(number(123.456789) == "123.4568");
  CHECK(number(123456) == "123456.0");
  CHECK(number(1e16) == "1e+16");
  CHECK(number(std::numeric_limits<double>::quiet_NaN()) == "nan");
  CHECK(number(-std::numeric_limits<double>::quiet_NaN()) == "nan");
  CHECK(number(std::numeric_limits<double>::infinity()) == "inf");
  CHECK(number(-std::numeric_limits<double>::infinity()) == "-inf");
}
