#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace minim::train {

// How precision, recall and F1 of several classes become one number; scikit-learn's names.
enum class Average : uint8_t {
  binary,         // those of class 1, of two classes
  macro,          // plain mean over all classes
  macro_present,  // plain mean over the classes that occur as a label or a prediction, which is
                  // scikit-learn's macro when it is given no list of classes
  micro,          // from the sums of the counts
  weighted,       // mean weighted by the rows of each class
};
// The Average of that name; an Error lists the names otherwise.
Average average_named(std::string_view name);

// Rows of one class: rightly given it, wrongly given it, wrongly not given it.
struct ClassCounts {
  int64_t true_positives = 0;
  int64_t false_positives = 0;
  int64_t false_negatives = 0;

  int64_t support() const { return true_positives + false_negatives; }
  int64_t predicted() const { return true_positives + false_positives; }
  // Fractions in [0, 1]; 0 where they are 0 / 0.
  double precision() const;
  double recall() const;
  double f1() const;  // 2 TP / (2 TP + FP + FN)
};

// Precision, recall and F1, with a sentence for each kind of 0 / 0 that was counted as 0.
struct Scores {
  double precision = 0;
  double recall = 0;
  double f1 = 0;
  std::vector<std::string> warnings;
};
// The average over classes, which must be at least one (two for binary).
Scores average_scores(std::span<const ClassCounts> classes, Average average);

// Counts of (label, prediction) pairs, added one by one or whole matrices at a time. The numbers
// made of them throw an Error while there are no rows.
class ConfusionMatrix {
 public:
  explicit ConfusionMatrix(int64_t classes);

  // Counts `rows` more of this pair; both must lie in 0 .. classes() - 1.
  void add(int64_t label, int64_t prediction, int64_t rows = 1);
  // Adds the counts of a matrix of as many classes.
  ConfusionMatrix& operator+=(const ConfusionMatrix& other);

  int64_t classes() const { return classes_; }
  int64_t count(int64_t label, int64_t prediction) const;
  int64_t total() const;
  ClassCounts of_class(int64_t k) const;
  std::vector<ClassCounts> per_class() const;

  double accuracy() const;
  // Mean recall of the classes that have rows.
  double balanced_accuracy() const;
  // Matthews' correlation, for more than two classes Gorodkin's R_K (2004); 0 where all labels or
  // all predictions are of one class.
  double mcc() const;
  Scores scores(Average average) const;

 private:
  void check_rows(std::string_view metric) const;

  int64_t classes_;
  std::vector<int64_t> counts_;  // [label, prediction]
};

// A fixed-width table for up to 12 classes, one row per label, "-" where precision or recall is
// 0 / 0. For more classes the worst confusions alone, at most `most` lines like
// "card_arrival -> card_delivery_estimate: 7" (label -> prediction). `labels` names each class.
std::string confusion_table(const ConfusionMatrix& matrix, const std::vector<std::string>& labels,
                            int most = 20);

}  // namespace minim::train
