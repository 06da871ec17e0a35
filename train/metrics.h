#pragma once

#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/tensor.h"
#include "train/confusion_matrix.h"

namespace minim::train {

// Names and values, in the order in which they are shown.
using Metrics = std::vector<std::pair<std::string, double>>;

// What a model said of a whole set and what is true; rows whose label is -1 or -100 are unlabelled.
struct EvalPrediction {
  Tensor predictions;  // logits [rows, labels], any floating dtype
  Tensor label_ids;    // [rows] integers; several labels: [rows, labels] of 0 and 1; regression:
                       // numbers of the shape of the predictions, or [rows] for one column
};
using ComputeMetrics = std::function<Metrics(const EvalPrediction&)>;

// One class per row: the counts of (label, index of the largest logit, the lowest where several are
// equal), without unlabelled rows. Throws for labels out of range and logits that are NaN. Adding
// the matrices of all batches gives that of the set.
ConfusionMatrix confusion_matrix(const EvalPrediction& prediction);
// accuracy, precision, recall, f1, mcc; the average is binary for two classes and macro above.
// confusion_matrix(prediction).scores(...) has other averages, and the warnings about 0 / 0. Throws
// if no row has a label.
Metrics classification_metrics(const EvalPrediction& prediction);
// The same with an average of one's own.
Metrics averaged_metrics(const EvalPrediction& prediction, Average average);

// Several labels per row, each predicted where its logit is above 0: counts per label.
std::vector<ClassCounts> multi_label_counts(const EvalPrediction& prediction);
// accuracy (rows with every label right), and precision, recall, f1 with the micro average.
// average_scores(multi_label_counts(prediction), ...) has other averages and warnings.
Metrics multi_label_metrics(const EvalPrediction& prediction);

// Correlations of equally many, finite or infinite, numbers; NaN where a side is constant. Spearman
// gives equal numbers the mean of their ranks.
double pearson(std::span<const double> x, std::span<const double> y);
double spearman(std::span<const double> x, std::span<const double> y);
// mse, mae, pearson, spearman; each the mean over the columns where there are several.
Metrics regression_metrics(const EvalPrediction& prediction);

// A line in Hugging Face's form, {'eval_loss': 0.6312, 'epoch': 1.0}: Python floats, with at most
// four decimals and, below 1, four significant digits.
std::string format_metrics(const Metrics& metrics);

}  // namespace minim::train
