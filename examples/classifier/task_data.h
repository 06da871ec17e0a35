#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cli.h"
#include "train/cached_dataset.h"

namespace classifier {

// A data file of `train`: in memory or, with a cache, as tokens in a file and texts that are read
// row by row. Either way its examples are the same.
class TaskData {
 public:
  // Without a cache it reads the file.
  TaskData(const DataOptions& options, std::string path, minim::text::Role role,
           minim::train::ProblemType type, std::optional<minim::train::TokenCache> cache);

  // Puts the rows in a random order, and leaves out all but the first; to be called in this order,
  // and before anything else.
  void shuffle(uint64_t seed);
  void keep_first(int64_t rows);

  // Visits the rows, under a cache in the order of the file and not in a shuffled one.
  void for_each(const std::function<void(const minim::text::Row&)>& visit) const;

  // From here on the cache has the tokens; says where they are from.
  void tokenize(const minim::text::Tokenizer& tokenizer, int64_t max_length);

  // The rows, or one for each distinct label. What is erased from it is left out of the examples.
  minim::text::Dataset& labelled();

  // The examples, with a line of figures.
  minim::text::Examples encode(const minim::text::Tokenizer& tokenizer, int64_t max_length,
                               minim::train::ProblemType type, const minim::text::LabelSet& labels);

  // Texts of the rows of an encoded set that was not shuffled, for the report.
  std::vector<std::string> texts() const;

 private:
  std::vector<int64_t> chosen_of(int64_t rows) const;

  const DataOptions options_;
  const std::string path_;
  const minim::text::Role role_;
  const minim::train::ProblemType type_;
  const std::optional<minim::train::TokenCache> cache_;
  std::optional<uint64_t> shuffle_seed_;
  int64_t most_ = 0;           // rows; 0: all
  minim::text::Dataset data_;  // without a cache
  std::optional<minim::train::CachedDataset> cached_;
};

}  // namespace classifier
