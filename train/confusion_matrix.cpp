#include "train/confusion_matrix.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include <fmt/format.h>
#include <utf8proc.h>

#include "core/error.h"
#include "text/utf8.h"

namespace minim::train {
namespace {

// More columns than this, or a wider table, no longer fit a terminal.
constexpr int64_t largest_table = 12;
constexpr size_t widest_table = 100;

double ratio(int64_t part, int64_t whole) {
  return whole == 0 ? 0 : double(part) / double(whole);
}

std::string undefined_text(const char* score, const char* reason, const std::vector<size_t>& which,
                           size_t classes) {
  if (which.size() == 1)
    return fmt::format("{}: class {} {}, so its value is set to 0", score, which[0], reason);
  return fmt::format("{}: {} of {} classes {}, so their values are set to 0", score, which.size(),
                     classes, reason);
}

size_t display_width(std::string_view text) {
  size_t width = 0;
  for (size_t at = 0; at < text.size();) {
    const text::DecodedUtf8 c = text::decode_utf8(text, at);
    width += size_t(utf8proc_charwidth(utf8proc_int32_t(c.code_point)));
    at += size_t(c.length);
  }
  return width;
}

using Cells = std::vector<std::vector<std::string>>;

std::vector<size_t> column_widths(const Cells& rows) {
  std::vector<size_t> widths(rows[0].size(), 0);
  for (const auto& row : rows) {
    for (size_t j = 0; j < row.size(); ++j)
      widths[j] = std::max(widths[j], display_width(row[j]));
  }
  return widths;
}

size_t table_width(const Cells& rows) {
  size_t width = 0;
  for (const size_t w : column_widths(rows))
    width += w + 2;
  return width - 2;
}

// First column to the left, numbers to the right.
std::string aligned(const Cells& rows) {
  const std::vector<size_t> widths = column_widths(rows);
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (size_t j = 0; j < row.size(); ++j) {
      const std::string padding(widths[j] - display_width(row[j]), ' ');
      line += j == 0 ? row[j] + padding : "  " + padding + row[j];
    }
    text += line.substr(0, line.find_last_not_of(' ') + 1) + '\n';
  }
  return text;
}

std::string fraction(double value, int64_t whole) {
  return whole == 0 ? "-" : fmt::format("{:.3f}", value);
}

Cells table_cells(const ConfusionMatrix& matrix, const std::vector<std::string>& row_names,
                  const std::vector<std::string>& column_names) {
  std::vector<std::string> head = {"label \\ predicted"};
  head.insert(head.end(), column_names.begin(), column_names.end());
  head.push_back("recall");
  Cells rows = {head};
  std::vector<std::string> foot = {"precision"};
  for (int64_t i = 0; i < matrix.classes(); ++i) {
    std::vector<std::string> row = {row_names[size_t(i)]};
    for (int64_t j = 0; j < matrix.classes(); ++j)
      row.push_back(fmt::format("{}", matrix.count(i, j)));
    const ClassCounts counts = matrix.of_class(i);
    row.push_back(fraction(counts.recall(), counts.support()));
    foot.push_back(fraction(counts.precision(), counts.predicted()));
    rows.push_back(row);
  }
  rows.push_back(foot);
  return rows;
}

std::string worst_confusions(const ConfusionMatrix& matrix, const std::vector<std::string>& labels,
                             int most) {
  std::vector<std::tuple<int64_t, int64_t, int64_t>> pairs;  // (-rows, label, prediction)
  int64_t wrong = 0;
  for (int64_t i = 0; i < matrix.classes(); ++i) {
    for (int64_t j = 0; j < matrix.classes(); ++j) {
      if (i == j || matrix.count(i, j) == 0) continue;
      pairs.emplace_back(-matrix.count(i, j), i, j);
      wrong += matrix.count(i, j);
    }
  }
  std::sort(pairs.begin(), pairs.end());
  const size_t shown = std::min(pairs.size(), size_t(std::max(most, 0)));
  std::string text = fmt::format(
      "{} of {} rows confused (label -> prediction: rows), {}\n", wrong, matrix.total(),
      shown == pairs.size() ? fmt::format("all {} pairs", shown)
                            : fmt::format("the worst {} of {} pairs", shown, pairs.size()));
  if (pairs.empty()) text = fmt::format("none of {} rows confused\n", matrix.total());
  for (size_t k = 0; k < shown; ++k) {
    const auto [rows, label, prediction] = pairs[k];
    text += fmt::format("{} -> {}: {}\n", labels[size_t(label)], labels[size_t(prediction)], -rows);
  }
  return text;
}

}  // namespace

Average average_named(std::string_view name) {
  if (name == "binary") return Average::binary;
  if (name == "macro") return Average::macro;
  if (name == "macro_present") return Average::macro_present;
  if (name == "micro") return Average::micro;
  if (name == "weighted") return Average::weighted;
  fail("average: \"{}\" is not known, it must be binary, macro, macro_present, micro or weighted",
       name);
}

double ClassCounts::precision() const {
  return ratio(true_positives, predicted());
}

double ClassCounts::recall() const {
  return ratio(true_positives, support());
}

double ClassCounts::f1() const {
  return ratio(2 * true_positives, 2 * true_positives + false_positives + false_negatives);
}

Scores average_scores(std::span<const ClassCounts> classes, Average average) {
  check(!classes.empty(), "scores: there must be at least one class");
  check(average != Average::binary || classes.size() == 2,
        "scores: the binary average needs 2 classes, there are {} (choose macro, micro or "
        "weighted)",
        classes.size());
  Scores scores;
  if (average == Average::micro) {
    ClassCounts sum;
    for (const ClassCounts& c : classes) {
      sum.true_positives += c.true_positives;
      sum.false_positives += c.false_positives;
      sum.false_negatives += c.false_negatives;
    }
    scores = {sum.precision(), sum.recall(), sum.f1(), {}};
    if (sum.predicted() == 0)
      scores.warnings.push_back("precision: no class is ever predicted, so it is set to 0");
    if (sum.support() == 0)
      scores.warnings.push_back("recall: no class has rows, so it is set to 0");
    if (sum.predicted() == 0 && sum.support() == 0)
      scores.warnings.push_back("f1: there are neither rows nor predictions, so it is set to 0");
    return scores;
  }

  double weights = 0;
  std::vector<size_t> never_predicted, without_rows, absent;
  for (size_t k = 0; k < classes.size(); ++k) {
    const ClassCounts& c = classes[k];
    const bool present = c.predicted() + c.support() > 0;
    double weight = 1;
    if (average == Average::binary) weight = k == 1 ? 1 : 0;
    if (average == Average::macro_present) weight = present ? 1 : 0;
    if (average == Average::weighted) weight = double(c.support());
    if (weight == 0) continue;
    weights += weight;
    scores.precision += weight * c.precision();
    scores.recall += weight * c.recall();
    scores.f1 += weight * c.f1();
    if (c.predicted() == 0) never_predicted.push_back(k);
    if (c.support() == 0) without_rows.push_back(k);
    if (!present) absent.push_back(k);
  }
  if (weights == 0) {
    scores.warnings.push_back("precision, recall, f1: no class has rows, so they are set to 0");
    return scores;
  }
  scores.precision /= weights;
  scores.recall /= weights;
  scores.f1 /= weights;
  const auto warn = [&](const char* score, const char* one, const char* many,
                        const std::vector<size_t>& which) {
    if (which.empty()) return;
    const char* reason = which.size() == 1 ? one : many;
    scores.warnings.push_back(undefined_text(score, reason, which, classes.size()));
  };
  warn("precision", "is never predicted", "are never predicted", never_predicted);
  warn("recall", "has no rows", "have no rows", without_rows);
  warn("f1", "has neither rows nor predictions", "have neither rows nor predictions", absent);
  return scores;
}

ConfusionMatrix::ConfusionMatrix(int64_t classes) : classes_(classes) {
  check(classes >= 1, "confusion matrix: {} classes given, there must be at least 1", classes);
  counts_.assign(size_t(classes) * size_t(classes), 0);
}

void ConfusionMatrix::add(int64_t label, int64_t prediction, int64_t rows) {
  check(label >= 0 && label < classes_, "confusion matrix: label {} must lie in 0..{}", label,
        classes_ - 1);
  check(prediction >= 0 && prediction < classes_,
        "confusion matrix: prediction {} must lie in 0..{}", prediction, classes_ - 1);
  counts_[size_t(label * classes_ + prediction)] += rows;
}

ConfusionMatrix& ConfusionMatrix::operator+=(const ConfusionMatrix& other) {
  check(classes_ == other.classes_, "confusion matrix: {} classes cannot be added to {}",
        other.classes_, classes_);
  for (size_t k = 0; k < counts_.size(); ++k)
    counts_[k] += other.counts_[k];
  return *this;
}

int64_t ConfusionMatrix::count(int64_t label, int64_t prediction) const {
  return counts_[size_t(label * classes_ + prediction)];
}

int64_t ConfusionMatrix::total() const {
  int64_t rows = 0;
  for (const int64_t count : counts_)
    rows += count;
  return rows;
}

ClassCounts ConfusionMatrix::of_class(int64_t k) const {
  ClassCounts counts{.true_positives = count(k, k)};
  for (int64_t j = 0; j < classes_; ++j) {
    if (j == k) continue;
    counts.false_positives += count(j, k);
    counts.false_negatives += count(k, j);
  }
  return counts;
}

std::vector<ClassCounts> ConfusionMatrix::per_class() const {
  std::vector<ClassCounts> all;
  for (int64_t k = 0; k < classes_; ++k)
    all.push_back(of_class(k));
  return all;
}

void ConfusionMatrix::check_rows(std::string_view metric) const {
  check(total() > 0, "{}: no rows were counted, there must be at least 1", metric);
}

double ConfusionMatrix::accuracy() const {
  check_rows("accuracy");
  int64_t right = 0;
  for (int64_t k = 0; k < classes_; ++k)
    right += count(k, k);
  return ratio(right, total());
}

double ConfusionMatrix::balanced_accuracy() const {
  check_rows("balanced_accuracy");
  double sum = 0;
  int64_t with_rows = 0;
  for (const ClassCounts& c : per_class()) {
    if (c.support() == 0) continue;
    sum += c.recall();
    ++with_rows;
  }
  return sum / double(with_rows);
}

double ConfusionMatrix::mcc() const {
  check_rows("mcc");
  // (c s - sum p t) / sqrt((s s - sum p p) (s s - sum t t)), written as sums without s s, which
  // keeps the digits where one class has nearly all rows.
  using Real = long double;
  const Real rows = Real(total());
  Real covariance = 0, of_predictions = 0, of_labels = 0;
  for (const ClassCounts& c : per_class()) {
    const Real predicted = Real(c.predicted()), support = Real(c.support());
    covariance += Real(c.true_positives) * rows - predicted * support;
    of_predictions += predicted * (rows - predicted);
    of_labels += support * (rows - support);
  }
  if (of_predictions == 0 || of_labels == 0) return 0;
  return double(covariance / std::sqrt(of_predictions * of_labels));
}

Scores ConfusionMatrix::scores(Average average) const {
  check_rows("scores");
  return average_scores(per_class(), average);
}

std::string confusion_table(const ConfusionMatrix& matrix, const std::vector<std::string>& labels,
                            int most) {
  check(int64_t(labels.size()) == matrix.classes(),
        "confusion_table: {} label names for {} classes, there must be one each", labels.size(),
        matrix.classes());
  if (matrix.classes() > largest_table) return worst_confusions(matrix, labels, most);
  const Cells named = table_cells(matrix, labels, labels);
  if (table_width(named) <= widest_table) return aligned(named);
  std::vector<std::string> numbers, numbered;
  for (size_t k = 0; k < labels.size(); ++k) {
    numbers.push_back(fmt::format("{}", k));
    numbered.push_back(fmt::format("{} {}", k, labels[k]));
  }
  return aligned(table_cells(matrix, numbered, numbers));
}

}  // namespace minim::train
