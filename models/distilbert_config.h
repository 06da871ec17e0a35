#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.h"

namespace minim::models {

// Hugging Face's config.json of a DistilBERT model; names and defaults are its. Keys that minim
// does not use are kept and written back.
struct DistilBertConfig {
  int64_t vocab_size = 30522;
  int64_t max_position_embeddings = 512;
  bool sinusoidal_pos_embds = false;
  int64_t n_layers = 6;
  int64_t n_heads = 12;
  int64_t dim = 768;
  int64_t hidden_dim = 3072;
  double dropout = 0.1;
  double attention_dropout = 0.1;
  std::string activation = "gelu";
  double initializer_range = 0.02;
  double qa_dropout = 0.1;
  double seq_classif_dropout = 0.2;
  int64_t pad_token_id = 0;
  bool tie_word_embeddings = true;
  // Class names in the order of their ids; one name is a regression head.
  std::vector<std::string> labels = {"LABEL_0", "LABEL_1"};
  // "regression", "single_label_classification", "multi_label_classification", or "" where the
  // labels decide.
  std::string problem_type;
  // A JSON object with every other key of the file, as it was.
  std::string other = "{}";

  int64_t num_labels() const { return int64_t(labels.size()); }
  // Makes the names LABEL_0 .. LABEL_{n-1} unless there are n names already.
  void set_num_labels(int64_t n);
  // Throws unless every size and rate makes sense together.
  void validate(std::string_view source = "config") const;

  // From the text of a config.json; `source` is its path, for messages. Appends to notes what is
  // odd but accepted.
  static DistilBertConfig from_json(std::string_view text, const std::string& source,
                                    std::vector<std::string>& notes);
  // From config.json in a model folder, or from that file itself.
  static DistilBertConfig from_pretrained(const std::string& path, std::vector<std::string>& notes);
  // "tiny" (2 layers of width 128), "small" (2 of 256) or "base" (DistilBERT's 6 of 768).
  static DistilBertConfig preset(std::string_view name);
  // The same with some keys of config.json changed: "dropout=0.2,n_layers=3".
  DistilBertConfig with_overrides(std::string_view changes) const;
  // As Hugging Face writes it: sorted keys, two spaces, final newline. `dtype` is that of the
  // weights beside it.
  std::string to_json(DType dtype = DType::f32) const;
};

}  // namespace minim::models
