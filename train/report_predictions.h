#pragma once

#include <string>
#include <vector>

#include "train/metrics.h"
#include "train/text_classification.h"

namespace minim::train {

// A set that a model was evaluated on, for people.
struct ReportedPredictions {
  ProblemType type = ProblemType::single_label_classification;
  std::vector<std::string> labels;  // names of the columns
  EvalPrediction prediction;
  std::vector<std::string> texts;  // of the rows
};

// Texts of a data set, pairs as "first / second".
std::vector<std::string> texts_of(const text::Dataset& data);

// What was right and wrong, as HTML. One class per row: the confusion matrix as a heat map, the
// worst confusions with the rows that the model was surest of, and precision, recall, F1 and
// support per class, the worst first. Several labels per row: the table, and the rows with most
// wrong labels. Regression: predictions over targets and the rows that are farthest off.
std::string predictions_html(const ReportedPredictions& reported);

}  // namespace minim::train
