#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/file.h"
#include "text/content_hash.h"
#include "text/sequences.h"

// Token ids of a data set in a file. First the ids of each example, i32, and behind them its token
// types where it has any; then an entry u64 for each example (where its numbers end, counted in
// i32, in the upper 62 bits; whether its text was cut; whether it has types), a number u32 for each
// (of its label), notes, and a footer with the sizes, a key and a hash of all that is before it.
namespace minim::text {

// Part of every key: it is raised whenever the format changes, or the tokens of a text do.
constexpr uint32_t token_file_version = 1;

// Writes such a file, which is not there before commit(). Holds 12 bytes for each example.
class TokenFileWriter {
 public:
  TokenFileWriter(std::string path, ContentHash key);

  // The next example; the label is any number that tells it from others, and may be used again.
  void add(const TokenSequence& sequence, uint32_t label, bool was_cut);
  // Ends it; the notes are any text, kept as it is.
  void commit(std::string_view notes);

 private:
  void write(const void* data, size_t bytes);
  void flush();

  std::string path_;
  AtomicFile file_;
  ContentHash key_;
  ContentHasher hasher_;
  std::vector<char> buffer_;
  uint64_t units_ = 0;
  std::vector<uint64_t> index_;
  std::vector<uint32_t> labels_;
};

// Such a file, of which 12 bytes for each example are in memory; tokens are read when asked for.
// Const members may be called from several threads at once.
class TokenFile {
 public:
  // Reads the file once to check it. Throws Error, saying why, unless it is whole, unchanged and
  // has that key.
  TokenFile(const std::string& path, ContentHash key);
  ~TokenFile();
  TokenFile(const TokenFile&) = delete;
  TokenFile& operator=(const TokenFile&) = delete;

  int64_t size() const { return int64_t(index_.size()); }
  // Tokens of an example.
  int64_t length(int64_t row) const;
  bool was_cut(int64_t row) const { return (index_[size_t(row)] & 2) != 0; }
  uint32_t label(int64_t row) const { return labels_[size_t(row)]; }
  // Reads the tokens of an example, replacing what the sequence holds.
  void read(int64_t row, TokenSequence& sequence) const;
  const std::string& notes() const { return notes_; }

 private:
  uint64_t begin(int64_t row) const { return row == 0 ? 0 : index_[size_t(row) - 1] >> 2; }

  std::string path_;
  int descriptor_ = -1;
  std::vector<uint64_t> index_;
  std::vector<uint32_t> labels_;
  std::string notes_;
};

}  // namespace minim::text
