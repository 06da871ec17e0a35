#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/normalizer.h"
#include "text/wordpiece.h"

namespace minim::text {

// Text to ids without tokens and offsets: normalisation, splitting and the walk through the
// vocabulary happen in one pass over the bytes. What is not ASCII goes through normalize().
class IdEncoder {
 public:
  IdEncoder(const NormalizerOptions& options, const WordPiece& wordpiece);

  // Appends the ids of a valid UTF-8 text; `wordpiece` is the one given to the constructor.
  void encode(const WordPiece& wordpiece, std::string_view text, std::vector<int32_t>& ids) const;

 private:
  enum Kind : uint8_t { letter, space, punctuation, other };
  struct Word {
    std::string bytes;  // normalised
    int64_t chars = 0;
  };
  size_t encode_mixed_word(const WordPiece& wordpiece, std::string_view text, size_t begin,
                           size_t at, std::vector<int32_t>& ids) const;

  NormalizerOptions options_;
  std::array<Kind, 256> kind_;              // other: not ASCII, or deleted
  std::array<uint8_t, 256> lower_;          // what an ASCII letter becomes
  std::array<uint8_t, 256> identity_;       // the same for text that is normalised
  std::array<int32_t, 128> punctuation_{};  // ids of ASCII punctuation as words
};

}  // namespace minim::text
