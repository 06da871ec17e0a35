#pragma once

#include "models/distilbert.h"
#include "optim/any_optimizer.h"
#include "text/tokenizer.h"
#include "train/records.h"

namespace minim::train {

// What a run is made of, as its folder and its checkpoints tell it. The members outlive it.
struct RunDescription {
  const models::DistilBertForSequenceClassification& model;
  const text::Tokenizer& tokenizer;
  const optim::AnyOptimizer& optimizer;
  const TrainingArguments& arguments;
  NamedArguments further = {};  // for training_args.json
};

}  // namespace minim::train
