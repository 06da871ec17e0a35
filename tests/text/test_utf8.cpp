#include <string>

#include <doctest/doctest.h>

#include "text/utf8.h"

using namespace minim::text;

TEST_CASE("every Unicode scalar value survives encoding and decoding") {
  int wrong = 0;
  for (char32_t c = 0; c <= 0x10FFFF; ++c) {
    if (c >= 0xD800 && c <= 0xDFFF) continue;
    std::string bytes;
    append_utf8(bytes, c);
    const DecodedUtf8 step = decode_utf8(bytes, 0);
    wrong += !step.valid || step.code_point != c || size_t(step.length) != bytes.size() ||
             validate_utf8(bytes) != std::string::npos;
  }
  CHECK(wrong == 0);
}

// The sequences and counts of replacement characters are those of the Unicode standard, section
// 3.9, tables 3-8 to 3-11.
TEST_CASE("each maximal ill-formed subsequence becomes one replacement character") {
  const std::string r = "\xEF\xBF\xBD";
  CHECK(replace_invalid_utf8("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41") ==
        r + r + r + r + r + r + r + r + "A");
  CHECK(replace_invalid_utf8("\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41") ==
        r + r + r + r + r + r + r + r + "A");
  CHECK(replace_invalid_utf8("\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42") ==
        r + r + r + r + r + "A" + r + r + "B");
  CHECK(replace_invalid_utf8("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41") == r + r + r + r + "A");
}

TEST_CASE("validation gives the offset of the first ill-formed byte") {
  CHECK(validate_utf8("") == std::string::npos);
  CHECK(validate_utf8("sixteen bytes ok") == std::string::npos);
  CHECK(validate_utf8("caf\xE9") == 3);
  CHECK(validate_utf8("caf\xC3\xA9 caf\xE9!") == 9);
  CHECK(validate_utf8("0123456789abcdef\xFF") == 16);
  CHECK(validate_utf8("ok \xE2\x82") == 3);  // cut inside a character
  CHECK(validate_utf8("\xFF\xFF", 1) == 1);
}
