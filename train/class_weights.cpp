#include "train/class_weights.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "core/error.h"
#include "core/printable.h"
#include "train/data_loader.h"

namespace minim::train {

std::vector<double> balanced_class_weights(const Tensor& labels, int64_t classes) {
  std::vector<int64_t> counts(size_t(classes), 0);
  int64_t rows = 0;
  for (const int64_t label : labels.values<int64_t>()) {
    if (label == -100) continue;
    check(label >= 0 && label < classes, "class weights: label {} is outside 0..{}", label,
          classes - 1);
    ++counts[size_t(label)];
    ++rows;
  }
  std::vector<double> weights;
  for (const int64_t count : counts)
    weights.push_back(count == 0 ? 0.0 : double(rows) / double(classes * count));
  return weights;
}

std::vector<double> parse_class_weights(std::string_view text, const text::LabelSet& classes,
                                        const Tensor& labels) {
  if (text == "balanced") return balanced_class_weights(labels, classes.size());
  std::vector<double> weights(size_t(classes.size()), 1.0);
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view part = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(part.size() + 1, rest.size()));
    const size_t equals = part.rfind('=');
    check(equals != std::string_view::npos,
          "class_weights: {} must be NAME=WEIGHT, or all of it the word balanced", printable(part));
    const std::string_view name = part.substr(0, equals);
    const auto label = classes.find(name);
    check(label.has_value(), "class_weights: there is no class {}{}", printable(name),
          text::did_you_mean(name, classes.names()));
    const std::string number(part.substr(equals + 1));
    char* end = nullptr;
    const double weight = std::strtod(number.c_str(), &end);
    check(!number.empty() && *end == 0 && std::isfinite(weight) && weight >= 0,
          "class_weights: the weight of {} is {}, must be a number that is not negative",
          printable(name), printable(number));
    weights[size_t(*label)] = weight;
  }
  return weights;
}

std::vector<double> balanced_row_weights(const text::Examples& set) {
  check(set.labels.defined() && set.labels.dtype() == DType::i64,
        "train_sampling_strategy: weighted needs rows with one class each");
  const auto labels = set.labels.values<int64_t>();
  const int64_t classes = labels.empty() ? 0 : std::max<int64_t>(std::ranges::max(labels), 0) + 1;
  const std::vector<double> of_class = balanced_class_weights(set.labels, classes);
  std::vector<double> weights;
  for (const int64_t label : labels)
    weights.push_back(label < 0 ? 0.0 : of_class[size_t(label)]);
  return weights;
}

double counted_weight(const text::Examples& set, const std::vector<int64_t>& rows,
                      std::span<const double> class_weights) {
  if (class_weights.empty()) return double(counted_rows(set, rows));
  const auto labels = set.labels.values<int64_t>();
  double weight = 0;
  for (const int64_t row : rows)
    if (const int64_t label = labels[size_t(row)]; label != -100)
      weight += class_weights[size_t(label)];
  return weight;
}

}  // namespace minim::train
