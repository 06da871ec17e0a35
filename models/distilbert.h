#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/packed_batch.h"
#include "models/distilbert_config.h"
#include "models/pretrained.h"
#include "nn/embedding.h"
#include "nn/transformer_block.h"

// DistilBERT (Sanh et al., 2019) on packed batches. Member names are the keys of Hugging Face's
// checkpoints.
namespace minim::models {

// Word plus position, normalised.
class DistilBertEmbeddings : public nn::Module {
 public:
  DistilBertEmbeddings(const DistilBertConfig& config, nn::Scope at);

  // [tokens, dim]. Throws if a sequence is longer than the table of positions.
  Tensor forward(const PackedBatch& batch) const;

  nn::Embedding word_embeddings, position_embeddings;
  nn::LayerNorm layer_norm;
  nn::Dropout dropout;
  // Above 0, training adds uniform noise of at most alpha / sqrt(longest sequence of the batch *
  // dim) to the word embeddings (NEFTune; Jain et al., 2023).
  double neftune_noise_alpha = 0;

 private:
  Tensor with_noise(const Tensor& words, int64_t longest) const;
};

// The body: embeddings and blocks.
class DistilBertModel : public nn::Module {
 public:
  explicit DistilBertModel(const DistilBertConfig& config, nn::Scope at = nn::Scope());

  // Last hidden states of all tokens, [tokens, dim].
  Tensor forward(const PackedBatch& batch) const;
  // The output of the embeddings and of every block, each [tokens, dim].
  Tensors hidden_states(const PackedBatch& batch) const;
  // Last hidden state of each sequence's first token, [sequences, dim]. The last block computes
  // nothing but these rows; the values equal forward()'s.
  Tensor first_tokens(const PackedBatch& batch) const;

  // Whether training keeps the inputs of blocks alone and computes the rest again in the backward
  // (nn/recompute.h): the same gradients to the last bit, in less memory and more time. The last
  // block is kept, since its backward comes at once. Copies of a model made before keep their own.
  void gradient_checkpointing_enable() { gradient_checkpointing_ = true; }
  void gradient_checkpointing_disable() { gradient_checkpointing_ = false; }
  bool is_gradient_checkpointing() const { return gradient_checkpointing_; }

  static DistilBertModel from_pretrained(const std::string& folder, const LoadOptions& options = {},
                                         LoadReport* report = nullptr);

  DistilBertEmbeddings embeddings;
  std::vector<nn::TransformerBlock> layer;

 private:
  AttentionRows all_rows(const PackedBatch& batch) const;
  Tensor run(size_t block, const Tensor& x, const AttentionRows& rows) const;

  bool gradient_checkpointing_ = false;
};

// The body with a head that reads each sequence's first token:
// pre_classifier -> ReLU -> dropout -> classifier.
class DistilBertForSequenceClassification : public nn::Module {
 public:
  // New weights from options.seed.
  explicit DistilBertForSequenceClassification(const DistilBertConfig& config,
                                               nn::ModelOptions options = {});

  // Logits [sequences, labels].
  Tensor forward(const PackedBatch& batch) const;

  // Mean loss of logits [sequences, labels]. config.problem_type decides; where it is empty, as in
  // Hugging Face: one label is a regression (MSE), class ids [sequences] i64 are cross-entropy
  // (-100 is ignored), floating targets [sequences, labels] are binary cross-entropy. If all labels
  // are -100 the loss is 0. Label smoothing, which cross-entropy alone has, is that of
  // cross_entropy().
  Tensor loss(const Tensor& logits, const Tensor& labels, double label_smoothing = 0) const;

  // As of the body.
  void gradient_checkpointing_enable() { distilbert.gradient_checkpointing_enable(); }
  void gradient_checkpointing_disable() { distilbert.gradient_checkpointing_disable(); }
  bool is_gradient_checkpointing() const { return distilbert.is_gradient_checkpointing(); }

  // From a folder with config.json and weights in any of Hugging Face's layouts.
  static DistilBertForSequenceClassification from_pretrained(const std::string& folder,
                                                             const LoadOptions& options = {},
                                                             LoadReport* report = nullptr);
  // Writes config.json and model.safetensors, each in one step; makes the folder if it has to.
  void save_pretrained(const std::string& folder) const;

  DistilBertConfig config;
  DistilBertModel distilbert;
  nn::Linear pre_classifier, classifier;
  nn::Dropout dropout;

 private:
  DistilBertForSequenceClassification(const DistilBertConfig& config, nn::Scope at);
};

}  // namespace minim::models
