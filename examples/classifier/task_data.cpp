#include "task_data.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "text/row_reader.h"
#include "text/sampler.h"
#include "train/report_predictions.h"

namespace classifier {

using namespace minim;

TaskData::TaskData(const DataOptions& options, std::string path, text::Role role,
                   train::ProblemType type, std::optional<train::TokenCache> cache)
    : options_(options),
      path_(std::move(path)),
      role_(role),
      type_(type),
      cache_(std::move(cache)) {
  if (!cache_) data_ = options_.read(path_, role_, type_);
}

void TaskData::shuffle(uint64_t seed) {
  shuffle_seed_ = seed;
  if (cache_) return;
  std::vector<text::Row> rows;
  for (const int64_t row : text::randperm(int64_t(data_.rows.size()), seed))
    rows.push_back(std::move(data_.rows[size_t(row)]));
  data_.rows = std::move(rows);
}

void TaskData::keep_first(int64_t rows) {
  most_ = rows;
  if (!cache_) classifier::keep_first(data_, rows);
}

// Rows of a file of so many, in order.
std::vector<int64_t> TaskData::chosen_of(int64_t rows) const {
  std::vector<int64_t> chosen(static_cast<size_t>(rows));
  std::iota(chosen.begin(), chosen.end(), 0);
  if (shuffle_seed_) chosen = text::randperm(rows, *shuffle_seed_);
  if (most_ > 0 && most_ < rows) chosen.resize(size_t(most_));
  return chosen;
}

void TaskData::for_each(const std::function<void(const text::Row&)>& visit) const {
  if (!cache_) {
    std::ranges::for_each(data_.rows, visit);
    return;
  }
  const text::DatasetOptions options = options_.dataset_options(role_, type_);
  std::vector<bool> is_chosen;
  if (shuffle_seed_ && most_ > 0) {
    text::RowReader reader(path_, options);
    for (text::Row row; reader.next(row);)
      is_chosen.push_back(false);
    for (const int64_t row : chosen_of(int64_t(is_chosen.size())))
      is_chosen[size_t(row)] = true;
  }
  text::RowReader reader(path_, options);
  int64_t i = 0;
  for (text::Row row; reader.next(row); ++i) {
    if (!is_chosen.empty() && !is_chosen[size_t(i)]) continue;
    if (is_chosen.empty() && most_ > 0 && i == most_) break;
    visit(row);
  }
}

void TaskData::tokenize(const text::Tokenizer& tokenizer, int64_t max_length) {
  if (!cache_) return;
  cached_.emplace(path_, options_.dataset_options(role_, type_), tokenizer, max_length, *cache_);
  print_notes(cached_->labelled().warnings);
  if (!cached_->why_not().empty()) print_notes({cached_->why_not()});
  fmt::print("{}\n", cached_->origin());
  if (shuffle_seed_ || most_ > 0) cached_->choose(chosen_of(cached_->file_rows()));
}

text::Dataset& TaskData::labelled() {
  return cached_ ? cached_->labelled() : data_;
}

text::Examples TaskData::encode(const text::Tokenizer& tokenizer, int64_t max_length,
                                train::ProblemType type, const text::LabelSet& labels) {
  train::EncodedDataset encoded =
      cached_ ? cached_->encode(type, labels)
              : train::encode_dataset(data_, tokenizer, max_length, type, labels);
  int64_t tokens = 0;
  for (const int64_t length : encoded.examples.lengths())
    tokens += length;
  const size_t rows = encoded.examples.sequences.size();
  fmt::print("{}: {} rows, {:.1f} tokens each, {} cut to {}\n", path_, rows,
             double(tokens) / double(rows), encoded.truncated_rows, max_length);
  return std::move(encoded.examples);
}

std::vector<std::string> TaskData::texts() const {
  if (!cached_) return train::texts_of(data_);
  text::Dataset chosen;
  auto next = cached_->rows().begin();
  int64_t i = 0;
  text::RowReader reader(path_, options_.dataset_options(role_, type_));
  for (text::Row row; next != cached_->rows().end() && reader.next(row); ++i) {
    if (i != *next) continue;
    chosen.rows.push_back(std::exchange(row, {}));
    ++next;
  }
  return train::texts_of(chosen);
}

}  // namespace classifier
