#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/dataset.h"

namespace minim::text {

// The classes of a classifier: names in the order of their ids, as in config.json's id2label.
class LabelSet {
 public:
  LabelSet() = default;
  // Throws if a name occurs twice.
  explicit LabelSet(std::vector<std::string> names);

  const std::vector<std::string>& names() const { return names_; }
  int64_t size() const { return int64_t(names_.size()); }
  // Id of a label, or nothing where it is no class.
  std::optional<int64_t> find(std::string_view label) const;
  bool operator==(const LabelSet& other) const { return names_ == other.names_; }

 private:
  std::vector<std::string> names_;
  std::map<std::string, int64_t, std::less<>> ids_;
};

// How the distinct labels are sorted: numerically when all are integers and by code point
// otherwise, or always by code point ("1", "10", "2") as Hugging Face's run_classification.py does.
enum class LabelOrder : uint8_t { numeric, code_point };

// The classes of a training set, from its labels or lists of labels. Throws for a single class and
// for labels that are one number written in two ways ("1" and "01" or "1.0"); appends a warning
// where labels differ only by case, spaces or Unicode normalisation.
LabelSet collect_labels(const Dataset& train, LabelOrder order, std::vector<std::string>& warnings);

// The classes of `data` in the order of a checkpoint whose names are the same set; otherwise as
// they are, with a warning if the checkpoint has other names or only LABEL_0, LABEL_1, ...
LabelSet keep_checkpoint_order(const LabelSet& data, const std::vector<std::string>& checkpoint,
                               std::vector<std::string>& warnings);

// Class id of each row. In training and evaluation data a label that is no class is an error that
// lists all such labels with lines and counts; in prediction data it gives -1, as no label does.
std::vector<int64_t> label_ids(const Dataset& data, const LabelSet& labels);

// Removes the rows whose label is no class and appends a warning that counts them. Throws if no row
// is left.
void skip_unseen_labels(Dataset& data, const LabelSet& labels);

// Labels as numbers, for regression. Throws naming the row that holds no finite decimal number.
std::vector<float> regression_targets(const Dataset& data);

// 0 or 1 for each row and class, [rows * classes], for multi-label data.
std::vector<float> multi_label_targets(const Dataset& data, const LabelSet& labels);

}  // namespace minim::text
