#include "train/report_predictions.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include <fmt/format.h>

#include "train/heat_map.h"
#include "train/page.h"
#include "train/plot.h"

namespace minim::train {

namespace {

using Rows = std::vector<std::vector<std::string>>;

constexpr size_t shown_confusions = 15, shown_examples = 2, shown_rows = 12, text_length = 180;

// "-" where a number is 0 / 0.
std::string ratio(double value, int64_t of) {
  return of > 0 ? fmt::format("{:.3f}", value) : "-";
}

std::string class_table(const ReportedPredictions& reported,
                        const std::vector<ClassCounts>& classes) {
  std::vector<size_t> order(classes.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, {}, [&](size_t k) { return classes[k].f1(); });
  Rows rows = {{"class", "precision", "recall", "F1", "support", "predicted"}};
  for (const size_t k : order) {
    const ClassCounts& c = classes[k];
    rows.push_back({reported.labels[k], ratio(c.precision(), c.predicted()),
                    ratio(c.recall(), c.support()), ratio(c.f1(), c.support() + c.predicted()),
                    fmt::format("{}", c.support()), fmt::format("{}", c.predicted())});
  }
  return "<h2>By class, the lowest F1 first</h2>\n" + table_html(rows);
}

std::string text_of(const ReportedPredictions& reported, size_t row) {
  return row < reported.texts.size() ? shortened(reported.texts[row], text_length)
                                     : fmt::format("row {}", row + 1);
}

// A row that was given another class than its own.
struct Mistake {
  size_t row;
  double confidence;
};

using Pair = std::pair<size_t, size_t>;  // label, prediction

std::map<Pair, std::vector<Mistake>> mistakes_of(const ReportedPredictions& reported) {
  const std::vector<float> logits = reported.prediction.predictions.to_vector<float>();
  const std::vector<int64_t> labels = reported.prediction.label_ids.to_vector<int64_t>();
  const size_t classes = reported.labels.size();
  std::map<Pair, std::vector<Mistake>> mistakes;
  for (size_t row = 0; row < labels.size(); ++row) {
    if (labels[row] < 0) continue;  // has no label
    const std::span<const float> of_row(logits.data() + row * classes, classes);
    const auto guess = size_t(std::ranges::max_element(of_row) - of_row.begin());
    if (guess != size_t(labels[row]))
      mistakes[{size_t(labels[row]), guess}].push_back(
          {row, probabilities(of_row, reported.type)[guess]});
  }
  return mistakes;
}

std::string worst_confusions(const ReportedPredictions& reported, const ConfusionMatrix& matrix) {
  auto mistakes = mistakes_of(reported);
  if (mistakes.empty()) return "<p>No row was given a wrong class.</p>\n";
  std::vector<Pair> order;
  for (const auto& entry : mistakes)
    order.push_back(entry.first);
  std::ranges::stable_sort(order, std::ranges::greater(),
                           [&](const Pair& pair) { return mistakes[pair].size(); });
  if (order.size() > shown_confusions) order.resize(shown_confusions);
  Rows rows = {{"label → predicted", "rows", "the surest (probability)"}};
  for (const Pair& pair : order) {
    std::vector<Mistake>& of_pair = mistakes[pair];
    std::ranges::stable_sort(of_pair, std::ranges::greater(), &Mistake::confidence);
    std::string examples;
    for (size_t i = 0; i < std::min(shown_examples, of_pair.size()); ++i)
      examples +=
          fmt::format("<div>{} <span class='small'>({:.2f})</span></div>",
                      escape_html(text_of(reported, of_pair[i].row)), of_pair[i].confidence);
    rows.push_back({fmt::format("{} → {}", escape_html(reported.labels[pair.first]),
                                escape_html(reported.labels[pair.second])),
                    fmt::format("{}&nbsp;of&nbsp;{}", of_pair.size(),
                                matrix.of_class(int64_t(pair.first)).support()),
                    examples});
  }
  return "<h2>Worst confusions</h2>\n" + table_of_html(rows, "prose");
}

std::string single_label(const ReportedPredictions& reported) {
  const ConfusionMatrix matrix = confusion_matrix(reported.prediction);
  std::string html = "<h2>Confusion matrix</h2>\n";
  if (matrix.classes() <= most_heat_map_classes)
    html += "<div class='wide'>\n" + heat_map_svg(matrix, reported.labels) +
            "</div>\n<p class='small'>A row for each label, a column for each prediction; the "
            "stronger, the larger the share of the row. On the diagonal is what was right; the "
            "rest, orange, is wrong. Cells say on pointing what they are.</p>\n";
  else
    html += fmt::format("<p>{} classes are too many for a picture; the worst are below.</p>\n",
                        matrix.classes());
  const std::vector<ClassCounts> classes = matrix.per_class();
  const auto commonest = std::ranges::max_element(classes, {}, &ClassCounts::support);
  html += fmt::format(
      "<p>The accuracy is {:.4f}; always answering {}, the commonest, would have {:.4f}.</p>\n",
      matrix.accuracy(), escape_html(reported.labels[size_t(commonest - classes.begin())]),
      double(commonest->support()) / double(matrix.total()));
  return html + worst_confusions(reported, matrix) + class_table(reported, matrix.per_class());
}

// Rows by how wrong they are, the worst first; at most shown_rows, and none that is right.
std::vector<size_t> worst_rows(const std::vector<double>& errors) {
  std::vector<size_t> order;
  for (size_t row = 0; row < errors.size(); ++row)
    if (errors[row] > 0) order.push_back(row);
  std::ranges::stable_sort(order, std::ranges::greater(), [&](size_t row) { return errors[row]; });
  if (order.size() > shown_rows) order.resize(shown_rows);
  return order;
}

std::string multi_label(const ReportedPredictions& reported) {
  const std::vector<double> logits = reported.prediction.predictions.to_vector<double>();
  const std::vector<double> targets = reported.prediction.label_ids.to_vector<double>();
  const size_t labels = reported.labels.size();
  std::vector<double> wrong(logits.size() / labels);
  for (size_t i = 0; i < logits.size(); ++i)
    wrong[i / labels] += (logits[i] > 0) != (targets[i] == 1);
  const auto names = [&](size_t row, auto holds) {
    std::string text;
    for (size_t k = 0; k < labels; ++k)
      if (holds(row * labels + k)) text += (text.empty() ? "" : ", ") + reported.labels[k];
    return text.empty() ? std::string("(none)") : text;
  };
  Rows rows = {{"labels", "predicted", "text"}};
  for (const size_t row : worst_rows(wrong))
    rows.push_back({names(row, [&](size_t i) { return targets[i] == 1; }),
                    names(row, [&](size_t i) { return logits[i] > 0; }), text_of(reported, row)});
  std::string html = class_table(reported, multi_label_counts(reported.prediction));
  if (rows.size() > 1) html += "<h2>Rows with most wrong labels</h2>\n" + table_html(rows, "prose");
  return html;
}

std::string regression(const ReportedPredictions& reported) {
  const std::vector<double> values = reported.prediction.predictions.to_vector<double>();
  const std::vector<double> targets = reported.prediction.label_ids.to_vector<double>();
  if (values.size() != targets.size() || values.empty()) return "";
  std::vector<double> both = values, errors(values.size());
  both.insert(both.end(), targets.begin(), targets.end());
  const auto is_finite = [](double value) { return std::isfinite(value); };
  if (!std::ranges::all_of(both, is_finite)) return "<p>Predictions are not finite.</p>\n";
  for (size_t row = 0; row < values.size(); ++row)
    errors[row] = std::abs(values[row] - targets[row]);
  Axis x = axis_around("target", both), y = x;
  y.label = "prediction";
  Plot plot("predictions over targets", x, y);
  plot.guide({x.low, x.high}, {x.low, x.high}, "");
  for (size_t row = 0; row < values.size(); ++row)
    plot.dot(targets[row], values[row], 0);
  Rows rows = {{"target", "predicted", "text"}};
  for (const size_t row : worst_rows(errors))
    rows.push_back({fmt::format("{:.4g}", targets[row]), fmt::format("{:.4g}", values[row]),
                    text_of(reported, row)});
  std::string html = "<h2>Predictions</h2>\n" + plot.svg();
  if (rows.size() > 1) html += "<h2>Farthest off</h2>\n" + table_html(rows, "prose");
  return html;
}

}  // namespace

std::vector<std::string> texts_of(const text::Dataset& data) {
  std::vector<std::string> texts;
  for (const text::Row& row : data.rows)
    texts.push_back(row.text_pair ? row.text + " / " + *row.text_pair : row.text);
  return texts;
}

std::string predictions_html(const ReportedPredictions& reported) {
  switch (reported.type) {
    case ProblemType::single_label_classification:
      return single_label(reported);
    case ProblemType::multi_label_classification:
      return multi_label(reported);
    default:
      return regression(reported);
  }
}

}  // namespace minim::train
