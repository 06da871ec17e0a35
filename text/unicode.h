#pragma once

#include <cstdint>

// Properties of code points as WordPiece needs them: categories of Unicode 8.0, canonical
// decomposition and order of 9.0, lower case of 17.0, whatever version utf8proc has.
namespace minim::text {

// Bits of char_class().
enum CharClass : uint8_t {
  space_class = 1,        // White_Space
  control_class = 2,      // Cc, Cf, Co without TAB, LF, CR
  punctuation_class = 4,  // P*, and every ASCII symbol
  ideograph_class = 8,    // CJK ideographs that become words of their own
  mark_class = 16,        // Mn
};

// The CharClass bits of a code point.
uint8_t char_class(char32_t c);

// Whether c may be part of a word in the sense of \w: letters, marks, decimal digits, connectors.
bool is_word_character(char32_t c);

// Canonical combining class.
int combining_class(char32_t c);

// Writes the full canonical decomposition of c and returns its length (1 where there is none).
int decompose(char32_t c, char32_t (&to)[4]);

// Writes the full lower-case mapping of c, without context rules, and returns its length.
int lower_case(char32_t c, char32_t (&to)[2]);

}  // namespace minim::text
