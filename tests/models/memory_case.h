#pragma once

#include <optional>
#include <string>
#include <vector>

#include "models/distilbert_memory.h"
#include "text/packing.h"

// Small models and data whose memory is predicted and measured.
namespace minim::test {

struct MemoryCase {
  std::string what, overrides;
  std::vector<int64_t> lengths;
  int64_t labels = 2;
  std::string freeze = {};
  bool token_types = false;
  int64_t micro_batches = 1;
  std::string problem_type = {};
  std::optional<DType> autocast = {};
  bool recomputes = false;
};

inline models::DistilBertConfig config_of(const MemoryCase& c) {
  models::DistilBertConfig config = models::DistilBertConfig::preset("tiny");
  config.vocab_size = 50;
  config.max_position_embeddings = 40;
  config.dim = 16;
  config.hidden_dim = 64;
  config.n_heads = 2;
  config = config.with_overrides(c.overrides);
  config.set_num_labels(c.labels);
  config.problem_type = c.problem_type;
  return config;
}

// Sequences of these lengths, with labels of the kind that the config asks for.
inline text::Examples make_examples(const models::DistilBertConfig& config,
                                    const std::vector<int64_t>& lengths, bool token_types) {
  const memory::Scope scope(memory::Category::data);
  text::Examples examples;
  for (const int64_t length : lengths) {
    text::TokenSequence& sequence = examples.sequences.emplace_back();
    for (int64_t t = 0; t < length; ++t)
      sequence.input_ids.push_back(int32_t((length * 7 + t * 3) % config.vocab_size));
    if (token_types) sequence.token_type_ids.resize(sequence.input_ids.size());
  }
  const auto rows = int64_t(lengths.size()), labels = config.num_labels();
  const bool class_ids = config.problem_type.empty() && labels > 1;
  examples.labels = class_ids     ? Tensor::zeros({rows}, DType::i64)
                    : labels == 1 ? Tensor::zeros({rows})
                                  : Tensor::zeros({rows, labels});
  return examples;
}

}  // namespace minim::test
