#pragma once

#include <string>

#include "models/distilbert.h"
#include "text/labels.h"
#include "text/tokenizer.h"
#include "train/text_classification.h"

namespace classifier {

// A saved classifier with its tokenizer, for evaluation and prediction.
struct SavedClassifier {
  minim::models::DistilBertForSequenceClassification model;
  minim::text::Tokenizer tokenizer;
  minim::text::LabelSet labels;
  minim::train::ProblemType type;
  int64_t max_length;  // tokens that a text may have

  // Notes go to standard error. Throws if the folder lacks a file or its parts do not fit together.
  // `max_length` 0: as many as the model has positions.
  static SavedClassifier load(const std::string& folder, int64_t max_length, minim::Device device);
};

}  // namespace classifier
