#include "text/sequences.h"

#include "core/error.h"
#include "text/token_file.h"

namespace minim::text {

Sequences::Sequences(std::shared_ptr<const TokenFile> file, std::vector<int64_t> rows)
    : file_(std::move(file)), rows_(std::move(rows)) {
  for (const int64_t row : rows_)
    check(row >= 0 && row < file_->size(), "sequences: row {} of {}", row, file_->size());
}

TokenSequence Sequences::operator[](size_t i) const {
  if (!file_) return owned_[i];
  TokenSequence sequence;
  file_->read(rows_[i], sequence);
  return sequence;
}

const TokenSequence& Sequences::read(size_t i, TokenSequence& buffer) const {
  if (!file_) return owned_[i];
  file_->read(rows_[i], buffer);
  return buffer;
}

int64_t Sequences::length(size_t i) const {
  return file_ ? file_->length(rows_[i]) : int64_t(owned_[i].input_ids.size());
}

Sequences::operator std::span<const TokenSequence>() const {
  check(!file_, "sequences: those of a file are not in memory");
  return owned_;
}

TokenSequence& Sequences::emplace_back() {
  check(!file_, "sequences: those of a file cannot be added to");
  return owned_.emplace_back();
}

}  // namespace minim::text
