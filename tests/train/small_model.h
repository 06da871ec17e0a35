#pragma once

#include <cmath>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "models/distilbert.h"
#include "optim/adamw.h"
#include "tests/core/temporary_folder.h"
#include "text/tokenizer.h"
#include "train/trainer.h"

// A model of a few hundred weights and rows that it can learn.
namespace minim::test {

using models::DistilBertConfig;
using models::DistilBertForSequenceClassification;
using train::IntervalStrategy;
using train::Metrics;
using train::Trainer;
using train::TrainerState;
using train::TrainingArguments;

inline DistilBertConfig small_config(double dropout = 0) {
  DistilBertConfig config = DistilBertConfig::preset("tiny");
  config.vocab_size = 30;
  config.max_position_embeddings = 12;
  config.n_layers = 1;
  config.n_heads = 2;
  config.dim = 8;
  config.hidden_dim = 16;
  config.dropout = config.attention_dropout = config.seq_classif_dropout = dropout;
  config.initializer_range = 0.3;  // logits that differ from row to row
  return config;
}

inline DistilBertForSequenceClassification small_model(double dropout = 0, uint64_t seed = 42) {
  return DistilBertForSequenceClassification(small_config(dropout), {.seed = seed});
}

// A vocabulary for it.
inline text::Tokenizer small_tokenizer() {
  std::vector<std::string> pieces = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
  for (char c = 'a'; pieces.size() < 30; ++c)
    pieces.emplace_back(1, c);
  return text::Tokenizer(text::TokenizerConfig::bert(pieces, true));
}

// Rows of 3 to 9 tokens. Those of class 1 hold token 7 where the others hold token 8.
inline text::Examples small_set(int64_t rows) {
  text::Examples set;
  std::vector<int64_t> labels;
  for (int64_t i = 0; i < rows; ++i) {
    const int64_t label = (i * 5 / 3) % 2;
    text::TokenSequence sequence{.input_ids = {2, label == 1 ? 7 : 8}};
    for (int64_t j = 0; j < i % 7; ++j)
      sequence.input_ids.push_back(int32_t(9 + (7 * i + 5 * j) % 20));
    sequence.input_ids.push_back(3);
    set.sequences.push_back(sequence);
    labels.push_back(label);
  }
  if (rows > 0) set.labels = Tensor::from<int64_t>(labels, {rows});
  return set;
}

// Notes what a Trainer tells.
struct Recorder : train::TrainerCallback {
  void on_train_begin(const TrainerState&) override { events += "["; }
  void on_step_end(const TrainerState& state) override {
    steps.push_back(state);
    events += "s";
  }
  void on_log(const TrainerState&, const Metrics& metrics) override {
    logs.push_back(metrics);
    events += "l";
  }
  void on_evaluate(const TrainerState& state, const Metrics& metrics) override {
    evaluations.push_back(metrics);
    evaluated_at.push_back(state.global_step);
    events += "e";
  }
  void on_train_end(const TrainerState&) override { events += "]"; }

  std::vector<TrainerState> steps;
  std::vector<Metrics> logs, evaluations;
  std::vector<int64_t> evaluated_at;
  std::string events;  // in their order
};

inline double value_of(const Metrics& metrics, const std::string& name) {
  for (const auto& [key, value] : metrics)
    if (key == name) return value;
  FAIL("there is no " << name);
  return NAN;
}

inline std::vector<std::string> names_of(const Metrics& metrics) {
  std::vector<std::string> names;
  for (const auto& entry : metrics)
    names.push_back(entry.first);
  return names;
}

// All weights, one parameter after the other.
inline std::vector<float> weights_of(const nn::Module& model) {
  std::vector<float> all;
  for (const NamedTensor& parameter : model.parameters())
    for (float value : parameter.tensor.to_vector<float>())
      all.push_back(value);
  return all;
}

// A model with its optimizer and a Trainer, and what it told.
struct Run {
  Run(const TrainingArguments& arguments, int64_t rows, int64_t eval_rows = 0, double dropout = 0)
      : Run(arguments, small_set(rows), small_set(eval_rows), dropout) {}
  Run(const TrainingArguments& arguments, text::Examples train_set, text::Examples eval_set = {},
      double dropout = 0, Device device = Device())
      : model(small_config(dropout), {.device = device}),
        optimizer(optim::decay_groups(model, 0.01), {.lr = arguments.learning_rate}),
        trainer(model, arguments, std::move(train_set), std::move(eval_set), optimizer) {
    trainer.add_callback(recorder);
  }

  std::vector<float> weights() const { return weights_of(model); }

  DistilBertForSequenceClassification model;
  optim::AdamW optimizer;
  Trainer trainer;
  std::shared_ptr<Recorder> recorder = std::make_shared<Recorder>();
};

inline double worst_difference(const std::vector<float>& a, const std::vector<float>& b) {
  REQUIRE(a.size() == b.size());
  double worst = 0;
  for (size_t i = 0; i < a.size(); ++i)
    worst = std::max(worst, std::abs(double(a[i]) - b[i]));
  return worst;
}

}  // namespace minim::test
