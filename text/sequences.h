#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace minim::text {

class TokenFile;

// Tokens of one example, special ones included.
struct TokenSequence {
  std::vector<int32_t> input_ids = {};
  std::vector<int32_t> token_type_ids = {};  // as many, or empty where every token is of type 0
};

// The tokens of many examples: in memory, or in a file from which those asked for are read.
class Sequences {
 public:
  Sequences() = default;
  // Implicit, as a vector stands for its sequences.
  Sequences(std::vector<TokenSequence> all)  // NOLINT(google-explicit-constructor)
      : owned_(std::move(all)) {}
  Sequences(std::initializer_list<TokenSequence> all) : owned_(all) {}
  // These rows of a file, in that order.
  Sequences(std::shared_ptr<const TokenFile> file, std::vector<int64_t> rows);

  size_t size() const { return file_ ? rows_.size() : owned_.size(); }
  bool empty() const { return size() == 0; }
  // A copy of one.
  TokenSequence operator[](size_t i) const;
  // The same without a copy where it is in memory; otherwise it is read into `buffer`.
  const TokenSequence& read(size_t i, TokenSequence& buffer) const;
  // Its tokens, which are not read for that.
  int64_t length(size_t i) const;

  // For those in memory alone.
  operator std::span<const TokenSequence>() const;  // NOLINT(google-explicit-constructor)
  void reserve(size_t n) { owned_.reserve(n); }
  void push_back(TokenSequence sequence) { emplace_back() = std::move(sequence); }
  TokenSequence& emplace_back();

 private:
  std::vector<TokenSequence> owned_ = {};
  std::shared_ptr<const TokenFile> file_ = {};
  std::vector<int64_t> rows_ = {};
};

}  // namespace minim::text
