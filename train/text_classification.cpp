#include "train/text_classification.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace minim::train {

namespace {

constexpr std::array<std::string_view, 3> names = {"single_label_classification",
                                                   "multi_label_classification", "regression"};

}  // namespace

ProblemType parse_problem_type(std::string_view name) {
  const auto found = std::ranges::find(names, name);
  check(found != names.end(), "problem_type: \"{}\" is unknown; there are {}, {} and {}", name,
        names[0], names[1], names[2]);
  return ProblemType(found - names.begin());
}

std::string_view name_of(ProblemType type) {
  return names[size_t(type)];
}

Tensor label_tensor(const text::Dataset& data, ProblemType type, const text::LabelSet& labels) {
  const auto rows = int64_t(data.rows.size());
  const bool has_labels = std::ranges::any_of(
      data.rows, [](const text::Row& row) { return row.label || !row.label_list.empty(); });
  if (!has_labels) return {};
  switch (type) {
    case ProblemType::single_label_classification:
      return Tensor::from(text::label_ids(data, labels), {rows});
    case ProblemType::multi_label_classification:
      return Tensor::from(text::multi_label_targets(data, labels), {rows, labels.size()});
    case ProblemType::regression:
      return Tensor::from(text::regression_targets(data), {rows});
  }
  return {};
}

int64_t encode_row(const text::Row& row, const std::string& file, const text::Tokenizer& tokenizer,
                   int64_t max_length, text::TokenSequence& sequence) {
  const text::EncodeOptions options{.max_length = max_length};
  try {
    if (row.text_pair)
      return tokenizer.encode_ids(row.text, *row.text_pair, sequence.input_ids,
                                  sequence.token_type_ids, options);
    sequence.token_type_ids.clear();
    return tokenizer.encode_ids(row.text, sequence.input_ids, options);
  } catch (const Error& error) {
    fail("{}: line {}: {}", file, row.line, error.what());
  }
}

EncodedDataset encode_dataset(const text::Dataset& data, const text::Tokenizer& tokenizer,
                              int64_t max_length, ProblemType type, const text::LabelSet& labels) {
  const memory::Scope scope(memory::Category::data);
  EncodedDataset encoded;
  encoded.examples.labels = label_tensor(data, type, labels);
  encoded.examples.sequences.reserve(data.rows.size());
  for (const text::Row& row : data.rows)
    encoded.truncated_rows += encode_row(row, data.file, tokenizer, max_length,
                                         encoded.examples.sequences.emplace_back()) > 0;
  return encoded;
}

ComputeMetrics default_metrics(ProblemType type) {
  switch (type) {
    case ProblemType::multi_label_classification:
      return multi_label_metrics;
    case ProblemType::regression:
      return regression_metrics;
    default:
      return classification_metrics;
  }
}

std::vector<double> probabilities(std::span<const float> logits, ProblemType type) {
  std::vector<double> p(logits.begin(), logits.end());
  if (type == ProblemType::regression) return p;
  if (type == ProblemType::multi_label_classification) {
    for (double& x : p)
      x = 1 / (1 + std::exp(-x));
    return p;
  }
  const double largest = *std::ranges::max_element(p);
  double total = 0;
  for (double& x : p)
    total += x = std::exp(x - largest);
  for (double& x : p)
    x /= total;
  return p;
}

void check_vocabulary(const text::Tokenizer& tokenizer, int64_t vocab_size,
                      const std::string& model) {
  check(
      tokenizer.vocab_size() <= vocab_size,
      "{}: the tokenizer has ids up to {}, the embedding table {} rows; use the tokenizer that the "
      "model was trained with",
      model, tokenizer.vocab_size() - 1, vocab_size);
}

}  // namespace minim::train
