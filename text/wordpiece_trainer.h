#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/normalizer.h"

namespace minim::text {

// Learns a WordPiece vocabulary from texts: starts from single characters and joins the most
// frequent neighbouring pieces until the vocabulary is full (Sennrich et al. 2016, with "##" before
// pieces inside a word, as in Hugging Face's WordPieceTrainer). The same texts in any order give
// the same vocabulary.
class WordPieceTrainer {
 public:
  struct Options {
    int64_t vocab_size = 8000;      // [PAD] [UNK] [CLS] [SEP] [MASK] included
    int64_t min_frequency = 1;      // pairs that occur less often are not joined
    int64_t limit_alphabet = 1000;  // most frequent characters kept; words with others are skipped
    int64_t max_input_chars_per_word = 100;  // longer words are skipped
    NormalizerOptions normalizer = {};
  };

  // Throws Error when vocab_size cannot hold the special tokens.
  explicit WordPieceTrainer(Options options);

  // Counts the words of a text, which must be valid UTF-8 (else Error).
  void add(std::string_view text);

  // The pieces by id: the five special tokens, the characters in code-point order, alone and with
  // "##" where they occur inside words, then joined pieces, the most frequent first. Fewer than
  // vocab_size where the texts do not give more; Error when no text had a word, or when the
  // characters alone are too many.
  std::vector<std::string> train() const;

 private:
  Options options_;
  std::unordered_map<std::string, int64_t> counts_;  // of normalised words
};

}  // namespace minim::text
