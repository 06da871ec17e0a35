#include "text/unicode.h"

#include <algorithm>
#include <iterator>
#include <vector>

#include <utf8proc.h>

#include "text/unicode_tables.h"

namespace minim::text {
namespace {

// Planes 0 and 1 hold nearly all text; beyond them the ranges are searched.
constexpr uint32_t table_size = 0x20000;

template <class Ranges>
bool contains(const Ranges& ranges, uint32_t c) {
  const auto range = std::upper_bound(std::begin(ranges), std::end(ranges), c,
                                      [](uint32_t value, CodeRange r) { return value < r.first; });
  return range != std::begin(ranges) && c <= std::prev(range)->last;
}

template <class Ranges>
void mark(std::vector<uint8_t>& table, const Ranges& ranges, CharClass bit) {
  for (const CodeRange range : ranges)
    for (uint32_t c = range.first; c <= range.last && c < table_size; ++c)
      table[c] |= bit;
}

std::vector<uint8_t> build_table() {
  std::vector<uint8_t> table(table_size);
  mark(table, space_ranges, space_class);
  mark(table, control_ranges, control_class);
  mark(table, punctuation_ranges, punctuation_class);
  mark(table, ideograph_ranges, ideograph_class);
  mark(table, mark_ranges, mark_class);
  constexpr CodeRange ascii_symbols[] = {{0x21, 0x2F}, {0x3A, 0x40}, {0x5B, 0x60}, {0x7B, 0x7E}};
  mark(table, ascii_symbols, punctuation_class);
  return table;
}

constexpr bool is_hangul_syllable(char32_t c) {
  return c >= 0xAC00 && c <= 0xD7A3;
}

}  // namespace

uint8_t char_class(char32_t c) {
  static const std::vector<uint8_t> table = build_table();
  if (c < table_size) return table[c];
  return uint8_t((contains(control_ranges, c) ? control_class : 0) |
                 (contains(ideograph_ranges, c) ? ideograph_class : 0) |
                 (contains(mark_ranges, c) ? mark_class : 0));
}

bool is_word_character(char32_t c) {
  switch (utf8proc_category(utf8proc_int32_t(c))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
      return true;
    default:
      break;
  }
  // The joiners, and the circled and squared letters, which are symbols but alphabetic.
  return c == 0x200C || c == 0x200D || (c >= 0x24B6 && c <= 0x24E9) ||
         (c >= 0x1F130 && c <= 0x1F149) || (c >= 0x1F150 && c <= 0x1F169) ||
         (c >= 0x1F170 && c <= 0x1F189) || contains(new_word_ranges, c);
}

int combining_class(char32_t c) {
  if (c < 0x300) return 0;
  const int value = utf8proc_get_property(utf8proc_int32_t(c))->combining_class;
  return value != 0 && contains(new_mark_ranges, c) ? 0 : value;
}

int decompose(char32_t c, char32_t (&to)[4]) {
  to[0] = c;
  if (c < 0xC0 || c == 0x11938) return 1;  // Unicode 9.0 does not know U+11938
  if (!is_hangul_syllable(c) &&
      utf8proc_get_property(utf8proc_int32_t(c))->decomp_seqindex == UINT16_MAX)
    return 1;
  utf8proc_int32_t buffer[4];
  int boundary = 0;
  const auto length =
      utf8proc_decompose_char(utf8proc_int32_t(c), buffer, 4, UTF8PROC_DECOMPOSE, &boundary);
  std::copy_n(buffer, length, to);
  return int(length);
}

int lower_case(char32_t c, char32_t (&to)[2]) {
  // Capitals of Unicode 16 and 17, and the one capital whose mapping has two code points.
  constexpr struct {
    uint32_t first, last, lower;
  } newer[] = {
      {0x1C89, 0x1C89, 0x1C8A},    {0xA7CB, 0xA7CB, 0x0264}, {0xA7CC, 0xA7CC, 0xA7CD},
      {0xA7CE, 0xA7CE, 0xA7CF},    {0xA7D2, 0xA7D2, 0xA7D3}, {0xA7D4, 0xA7D4, 0xA7D5},
      {0xA7DA, 0xA7DA, 0xA7DB},    {0xA7DC, 0xA7DC, 0x019B}, {0x10D50, 0x10D65, 0x10D70},
      {0x16EA0, 0x16EB8, 0x16EBB},
  };
  if (c == 0x130) {
    to[0] = 'i', to[1] = 0x307;
    return 2;
  }
  to[0] = char32_t(utf8proc_tolower(utf8proc_int32_t(c)));
  if (to[0] == c && c >= newer[0].first)
    for (const auto& range : newer)
      if (c >= range.first && c <= range.last) to[0] = range.lower + (c - range.first);
  return 1;
}

}  // namespace minim::text
