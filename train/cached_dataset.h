#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "text/dataset.h"
#include "text/token_file.h"
#include "text/tokenizer.h"
#include "train/text_classification.h"

namespace minim::train {

// Where tokens of data files are kept between runs.
struct TokenCache {
  std::string folder = {};  // made where there is none
  bool overwrite = false;   // tokenize even what is there
};

// A labelled data file whose tokens are in another file, for files larger than memory and for not
// tokenizing them again: the same examples as encode_dataset() gives. The other file's name has a
// hash of the text, of all that its tokens depend on, and of the format; what is there under that
// name is taken only if it is whole. Memory grows by less than 100 bytes for each row, and by each
// distinct label, but not by the text, of which some MiB are resident at a time.
class CachedDataset {
 public:
  // Reads the tokens that the cache has, or else the text, row by row. Throws as read_dataset() and
  // encode_dataset() do, and where the cache cannot be written.
  CachedDataset(const std::string& path, const text::DatasetOptions& options,
                const text::Tokenizer& tokenizer, int64_t max_length, const TokenCache& cache);

  // One sentence on where the tokens are from.
  const std::string& origin() const { return origin_; }
  // Why tokens that the cache had were not taken; empty where they were, or there were none.
  const std::string& why_not() const { return why_not_; }

  // Rows of the file.
  int64_t file_rows() const { return tokens_->size(); }
  // Rows that were chosen, in order; at first all.
  const std::vector<int64_t>& rows() const { return rows_; }
  // Chooses rows, in that order.
  void choose(std::vector<int64_t> rows);

  // The data set with one row for each distinct label of the chosen rows, without texts. Labels
  // that are erased from it take their rows with them when it is encoded.
  text::Dataset& labelled() { return labelled_; }

  // The examples of the chosen rows.
  EncodedDataset encode(ProblemType type, const text::LabelSet& labels);

 private:
  void read_notes();

  std::shared_ptr<const text::TokenFile> tokens_;
  std::string origin_, why_not_;
  std::vector<int64_t> rows_;
  std::vector<text::Row> distinct_;  // by number of the label
  text::Dataset labelled_;
};

}  // namespace minim::train
