#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/dataset.h"
#include "text/labels.h"
#include "text/packing.h"
#include "text/tokenizer.h"
#include "train/metrics.h"

// From a data file to what a Trainer eats.
namespace minim::train {

// The kinds of task, with Hugging Face's names: "single_label_classification",
// "multi_label_classification" and "regression".
enum class ProblemType : uint8_t {
  single_label_classification,
  multi_label_classification,
  regression
};
ProblemType parse_problem_type(std::string_view name);
std::string_view name_of(ProblemType type);

// Token ids and labels of a data set. Longer texts are cut to max_length tokens, special ones
// included; `truncated_rows` counts them. Rows without labels give examples without labels. Throws,
// naming file and line, for text that is not UTF-8.
struct EncodedDataset {
  text::Examples examples = {};
  int64_t truncated_rows = 0;
};
EncodedDataset encode_dataset(const text::Dataset& data, const text::Tokenizer& tokenizer,
                              int64_t max_length, ProblemType type, const text::LabelSet& labels);

// The labels of a data set as Examples hold them; undefined where no row has one.
Tensor label_tensor(const text::Dataset& data, ProblemType type, const text::LabelSet& labels);

// Token ids of a row, in place of those that the sequence holds; returns how many were cut off.
int64_t encode_row(const text::Row& row, const std::string& file, const text::Tokenizer& tokenizer,
                   int64_t max_length, text::TokenSequence& sequence);

// The metrics that suit a task.
ComputeMetrics default_metrics(ProblemType type);

// Probabilities of the classes from a row of logits: softmax, or a sigmoid each for multi-label;
// regression gives the values themselves.
std::vector<double> probabilities(std::span<const float> logits, ProblemType type);

// Throws unless every token id has a row in the model's embedding table.
void check_vocabulary(const text::Tokenizer& tokenizer, int64_t vocab_size,
                      const std::string& model);

}  // namespace minim::train
