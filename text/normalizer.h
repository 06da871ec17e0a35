#pragma once

#include <cstdint>
#include <optional>
#include <vector>

// BERT's text normalisation, code point for code point as Hugging Face's BertNormalizer does it.
namespace minim::text {

// The fields of BertNormalizer in tokenizer.json.
struct NormalizerOptions {
  bool clean_text = true;            // delete control characters, make every white space a space
  bool handle_chinese_chars = true;  // make each CJK ideograph a word of its own
  std::optional<bool> strip_accents = {};  // none: as lowercase
  bool lowercase = true;

  bool strips_accents() const { return strip_accents.value_or(lowercase); }
  // "normalizer": null in tokenizer.json.
  static NormalizerOptions none() { return {false, false, false, false}; }
  bool operator==(const NormalizerOptions&) const = default;
};

// A code point and the place in the original text that it stands for.
struct NormalizedChar {
  char32_t code_point;
  uint32_t source;
};

// Canonical decomposition (NFD) in place. A decomposed character keeps the source of the character
// it comes from; where marks change places, sources stay in order, as in the library.
void to_nfd(std::vector<NormalizedChar>& chars);

// Applies the options to a text in place: delete, map white space, surround ideographs with spaces,
// decompose and drop accents, lower-case, in this order.
void normalize(const NormalizerOptions& options, std::vector<NormalizedChar>& chars);

// Whether text splits here: white space is dropped, punctuation is a word of its own
// (BertPreTokenizer).
enum class Boundary : uint8_t { none, space, punctuation };
Boundary boundary_of(char32_t c);

}  // namespace minim::text
