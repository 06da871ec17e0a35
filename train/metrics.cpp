#include "train/metrics.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <numeric>

#include <fmt/format.h>

#include "core/error.h"

namespace minim::train {
namespace {

constexpr double nan = std::numeric_limits<double>::quiet_NaN();

// As double, with no copy of the tensor in f64 beside them.
std::vector<double> numbers_of(const Tensor& x) {
  const Tensor dense = x.contiguous().to(Device::cpu());
  return dispatch_any(x.dtype(), [&]<class T>() {
    std::vector<double> numbers;
    numbers.reserve(size_t(x.numel()));
    for (const T value : dense.values<T>())
      numbers.push_back(double(value));
    return numbers;
  });
}

bool is_unlabelled(int64_t label) {
  return label == -1 || label == -100;
}

// Throws unless predictions are [rows, labels] and there are labels at all.
void check_predictions(const char* what, const EvalPrediction& p) {
  check(p.predictions.defined() && p.label_ids.defined(),
        "{}: predictions and label_ids must both be given", what);
  check(p.predictions.rank() == 2 && p.predictions.size(1) >= 1,
        "{}: predictions {} must be [rows, labels]", what, p.predictions.shape());
}

void check_numbers(const char* what, const std::vector<double>& values, int64_t columns) {
  for (size_t k = 0; k < values.size(); ++k) {
    check(!std::isnan(values[k]), "{}: the prediction at [{}, {}] is NaN", what,
          int64_t(k) / columns, int64_t(k) % columns);
  }
}

// Several labels per row: what is true and what is predicted, each [rows, labels] of 0 and 1.
struct MultiLabelRows {
  std::vector<uint8_t> targets;
  std::vector<uint8_t> predicted;
};

MultiLabelRows multi_label_rows(const EvalPrediction& p) {
  check_predictions("multi_label_metrics", p);
  check(p.label_ids.shape() == p.predictions.shape(),
        "multi_label_metrics: label_ids {} must have the shape of the predictions {}",
        p.label_ids.shape(), p.predictions.shape());
  const int64_t labels = p.predictions.size(1);
  const std::vector<double> logits = numbers_of(p.predictions);
  check_numbers("multi_label_metrics", logits, labels);
  MultiLabelRows rows;
  for (const double logit : logits)
    rows.predicted.push_back(logit > 0);
  for (const double value : numbers_of(p.label_ids)) {
    const int64_t at = int64_t(rows.targets.size());
    check(value == 0 || value == 1, "multi_label_metrics: target {} at [{}, {}] must be 0 or 1",
          value, at / labels, at % labels);
    rows.targets.push_back(value == 1);
  }
  return rows;
}

std::vector<ClassCounts> counts_per_label(const MultiLabelRows& rows, size_t labels) {
  std::vector<ClassCounts> counts(labels);
  for (size_t k = 0; k < rows.targets.size(); ++k) {
    ClassCounts& c = counts[k % labels];
    c.true_positives += rows.predicted[k] && rows.targets[k];
    c.false_positives += rows.predicted[k] && !rows.targets[k];
    c.false_negatives += !rows.predicted[k] && rows.targets[k];
  }
  return counts;
}

// Ranks from 1; equal values share the mean of theirs.
std::vector<double> average_ranks(std::span<const double> x) {
  std::vector<size_t> order(x.size());
  std::iota(order.begin(), order.end(), size_t(0));
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return x[a] < x[b]; });
  std::vector<double> ranks(x.size());
  for (size_t first = 0, last; first < order.size(); first = last) {
    for (last = first; last < order.size() && x[order[last]] == x[order[first]];)
      ++last;
    const double rank = double(first + 1 + last) / 2;
    for (size_t k = first; k < last; ++k)
      ranks[order[k]] = rank;
  }
  return ranks;
}

bool is_constant(std::span<const double> x) {
  return std::all_of(x.begin(), x.end(), [&](double value) { return value == x[0]; });
}

std::vector<double> column(const std::vector<double>& values, int64_t columns, int64_t j) {
  std::vector<double> out;
  for (size_t k = size_t(j); k < values.size(); k += size_t(columns))
    out.push_back(values[k]);
  return out;
}

// As Python writes a float: shortest digits, always a point or an exponent.
std::string python_float(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

double rounded(double value) {
  if (!std::isfinite(value)) return value;
  const std::string text =
      std::abs(value) < 1 ? fmt::format("{:.4g}", value) : fmt::format("{:.4f}", value);
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

}  // namespace

ConfusionMatrix confusion_matrix(const EvalPrediction& p) {
  check_predictions("classification_metrics", p);
  const int64_t rows = p.predictions.size(0), classes = p.predictions.size(1);
  check(p.label_ids.rank() == 1 && p.label_ids.size(0) == rows,
        "classification_metrics: label_ids {} must be [{}], one for each row of the predictions {}",
        p.label_ids.shape(), rows, p.predictions.shape());
  check(!is_floating(p.label_ids.dtype()),
        "classification_metrics: label_ids are {}, they must be integers",
        name_of(p.label_ids.dtype()));
  const std::vector<double> logits = numbers_of(p.predictions);
  check_numbers("classification_metrics", logits, classes);
  const std::vector<int64_t> labels = p.label_ids.to_vector<int64_t>();
  ConfusionMatrix matrix(classes);
  for (int64_t i = 0; i < rows; ++i) {
    const int64_t label = labels[size_t(i)];
    if (is_unlabelled(label)) continue;
    check(label >= 0 && label < classes,
          "classification_metrics: label {} of row {} must lie in 0..{} (or be -1 or -100, which "
          "leaves the row out)",
          label, i, classes - 1);
    const auto row = logits.begin() + i * classes;
    matrix.add(label, std::max_element(row, row + classes) - row);
  }
  return matrix;
}

Metrics averaged_metrics(const EvalPrediction& p, Average average) {
  const ConfusionMatrix matrix = confusion_matrix(p);
  check(matrix.total() > 0,
        "classification_metrics: none of {} rows has a label, at least 1 is needed",
        p.predictions.size(0));
  const Scores scores = matrix.scores(average);
  return {{"accuracy", matrix.accuracy()},
          {"precision", scores.precision},
          {"recall", scores.recall},
          {"f1", scores.f1},
          {"mcc", matrix.mcc()}};
}

Metrics classification_metrics(const EvalPrediction& p) {
  const bool two = p.predictions.rank() == 2 && p.predictions.size(1) == 2;
  return averaged_metrics(p, two ? Average::binary : Average::macro);
}

std::vector<ClassCounts> multi_label_counts(const EvalPrediction& p) {
  return counts_per_label(multi_label_rows(p), size_t(p.predictions.size(1)));
}

Metrics multi_label_metrics(const EvalPrediction& p) {
  const MultiLabelRows rows = multi_label_rows(p);
  const int64_t number = p.predictions.size(0), labels = p.predictions.size(1);
  check(number > 0, "multi_label_metrics: no rows given, at least 1 is needed");
  const Scores scores = average_scores(counts_per_label(rows, size_t(labels)), Average::micro);
  int64_t right = 0;
  for (int64_t i = 0; i < number; ++i) {
    const auto wanted = rows.targets.begin() + i * labels;
    right += std::equal(wanted, wanted + labels, rows.predicted.begin() + i * labels);
  }
  return {{"accuracy", double(right) / double(number)},
          {"precision", scores.precision},
          {"recall", scores.recall},
          {"f1", scores.f1}};
}

double pearson(std::span<const double> x, std::span<const double> y) {
  check(x.size() == y.size(), "pearson: {} and {} numbers, there must be equally many", x.size(),
        y.size());
  if (x.empty() || is_constant(x) || is_constant(y)) return nan;
  const double n = double(x.size());
  const double mean_x = std::accumulate(x.begin(), x.end(), 0.0) / n;
  const double mean_y = std::accumulate(y.begin(), y.end(), 0.0) / n;
  double xy = 0, xx = 0, yy = 0;
  for (size_t k = 0; k < x.size(); ++k) {
    const double dx = x[k] - mean_x, dy = y[k] - mean_y;
    xy += dx * dy;
    xx += dx * dx;
    yy += dy * dy;
  }
  // Rounding may carry a perfect correlation past 1. std::clamp keeps NaN.
  return std::clamp(xy / (std::sqrt(xx) * std::sqrt(yy)), -1.0, 1.0);
}

double spearman(std::span<const double> x, std::span<const double> y) {
  check(x.size() == y.size(), "spearman: {} and {} numbers, there must be equally many", x.size(),
        y.size());
  return pearson(average_ranks(x), average_ranks(y));
}

Metrics regression_metrics(const EvalPrediction& p) {
  check_predictions("regression_metrics", p);
  const int64_t rows = p.predictions.size(0), columns = p.predictions.size(1);
  check(p.label_ids.shape() == p.predictions.shape() ||
            (columns == 1 && p.label_ids.shape() == Shape{rows}),
        "regression_metrics: label_ids {} must have the shape of the predictions {}",
        p.label_ids.shape(), p.predictions.shape());
  check(rows > 0, "regression_metrics: no rows given, at least 1 is needed");
  const std::vector<double> predicted = numbers_of(p.predictions);
  check_numbers("regression_metrics", predicted, columns);
  const std::vector<double> targets = numbers_of(p.label_ids);
  double squares = 0, distances = 0, pearsons = 0, spearmans = 0;
  for (size_t k = 0; k < targets.size(); ++k) {
    check(!std::isnan(targets[k]), "regression_metrics: the target at [{}, {}] is NaN",
          int64_t(k) / columns, int64_t(k) % columns);
    const double distance = std::abs(predicted[k] - targets[k]);
    squares += distance * distance;
    distances += distance;
  }
  for (int64_t j = 0; j < columns; ++j) {
    const std::vector<double> x = column(targets, columns, j), y = column(predicted, columns, j);
    pearsons += pearson(x, y);
    spearmans += spearman(x, y);
  }
  return {{"mse", squares / double(targets.size())},
          {"mae", distances / double(targets.size())},
          {"pearson", pearsons / double(columns)},
          {"spearman", spearmans / double(columns)}};
}

std::string format_metrics(const Metrics& metrics) {
  std::string line;
  for (const auto& [name, value] : metrics) {
    line += fmt::format("{}'{}': {}", line.empty() ? "" : ", ", name, python_float(rounded(value)));
  }
  return "{" + line + "}";
}

}  // namespace minim::train
