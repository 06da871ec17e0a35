#pragma once

#include <cstddef>
#include <string>
#include <string_view>

// Strict UTF-8 as the Unicode standard defines it (table 3-7): no overlong forms, no surrogates,
// nothing above U+10FFFF.
namespace minim::text {

// One step of decoding: a code point, or the length of the maximal ill-formed subsequence.
struct DecodedUtf8 {
  char32_t code_point;  // U+FFFD where the bytes are ill-formed
  int length;           // bytes consumed, at least 1
  bool valid;
};

// Decodes what begins at byte `at`, which must be smaller than bytes.size().
DecodedUtf8 decode_utf8(std::string_view bytes, size_t at);

// Byte offset of the first ill-formed subsequence at or after `from`, or std::string_view::npos.
size_t validate_utf8(std::string_view bytes, size_t from = 0);

// The same text with one U+FFFD for each maximal ill-formed subsequence, as browsers and Python do.
std::string replace_invalid_utf8(std::string_view bytes);

// Appends a code point, which must be a Unicode scalar value.
void append_utf8(std::string& to, char32_t code_point);

}  // namespace minim::text
