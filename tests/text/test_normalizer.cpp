#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "tests/text/tokenizer_data.h"
#include "text/normalizer.h"

namespace minim::text {
namespace {

std::vector<NormalizedChar> chars_of(const std::u32string& text) {
  std::vector<NormalizedChar> chars;
  for (size_t i = 0; i < text.size(); ++i)
    chars.push_back({text[i], uint32_t(i)});
  return chars;
}

std::u32string text_of(const std::vector<NormalizedChar>& chars) {
  std::u32string text;
  for (const NormalizedChar c : chars)
    text += c.code_point;
  return text;
}

std::u32string normalized(const NormalizerOptions& options, const std::u32string& text) {
  auto chars = chars_of(text);
  normalize(options, chars);
  return text_of(chars);
}

std::u32string hex_list(const std::string& list, char separator) {
  std::u32string text;
  std::istringstream parts(list);
  for (std::string part; std::getline(parts, part, separator);)
    if (!part.empty()) text += char32_t(std::stoul(part, nullptr, 16));
  return text;
}

std::vector<std::vector<std::string>> rows_of(const std::string& name) {
  std::ifstream file(tokenizer_data(name));
  REQUIRE(file.good());
  std::vector<std::vector<std::string>> rows;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with('#')) continue;
    std::istringstream fields(line);
    auto& row = rows.emplace_back();
    for (std::string field; std::getline(fields, field, '\t');)
      row.push_back(field);
  }
  return rows;
}

// What a code point must become, and whether it splits words: a line of codepoints_*.tsv.
struct Rule {
  std::string kind = "keep";
  std::u32string mapping;
};

// The words that the code point leaves of the probe a-c-b.
std::vector<std::u32string> expected_words(const Rule& rule, char32_t c) {
  std::u32string middle = rule.mapping.empty() ? std::u32string(1, c) : rule.mapping;
  if (rule.kind == "hangul") {
    // The arithmetic of the Unicode standard, section 3.12.
    const char32_t index = c - 0xAC00;
    middle = {0x1100 + index / 588, 0x1161 + index % 588 / 28};
    if (index % 28 != 0) middle += 0x11A7 + index % 28;
  }
  if (rule.kind == "removed") return {U"ab"};
  if (rule.kind == "space") return {U"a", U"b"};
  if (rule.kind.starts_with("punct") || rule.kind.starts_with("cjk")) return {U"a", middle, U"b"};
  return {U'a' + middle + U'b'};
}

std::vector<std::u32string> words_of(const std::u32string& text) {
  std::vector<std::u32string> words(1);
  for (const char32_t c : text) {
    const Boundary boundary = boundary_of(c);
    if (boundary != Boundary::none && !words.back().empty()) words.emplace_back();
    if (boundary == Boundary::space) continue;
    words.back() += c;
    if (boundary == Boundary::punctuation) words.emplace_back();
  }
  if (words.back().empty()) words.pop_back();
  return words;
}

TEST_CASE("every code point is removed, split off, mapped or kept as in the library") {
  const std::pair<const char*, NormalizerOptions> files[] = {
      {"codepoints_cased.tsv", {true, true, {}, false}},
      {"codepoints_uncased.tsv", {true, true, {}, true}},
      {"codepoints_lower_only.tsv", {true, true, false, true}},
      {"codepoints_strip_only.tsv", {true, true, true, false}},
  };
  for (const auto& [name, options] : files) {
    const auto& which = name;
    CAPTURE(which);
    std::vector<Rule> rules(0x110000);
    for (const auto& row : rows_of(name)) {
      Rule rule{row[2], row.size() > 3 ? hex_list(row[3], '+') : U""};
      for (auto c = std::stoul(row[0], nullptr, 16); c <= std::stoul(row[1], nullptr, 16); ++c)
        rules[c] = rule;
    }
    int wrong = 0;
    char32_t first_wrong = 0;
    for (char32_t c = 0; c < 0x110000; ++c) {
      if (c >= 0xD800 && c <= 0xDFFF) continue;
      const std::u32string probe{U'a', c, U'b'};
      if (words_of(normalized(options, probe)) == expected_words(rules[c], c)) continue;
      if (wrong++ == 0) first_wrong = c;
    }
    CAPTURE(uint32_t(first_wrong));
    CHECK(wrong == 0);
  }
}

TEST_CASE("marks come into canonical order as in Unicode 9") {
  const auto rows = rows_of("nfd_order.tsv");
  REQUIRE(rows.size() == 895);
  for (const auto& row : rows) {
    CAPTURE(row[0]);
    auto chars = chars_of(hex_list(row[0], ' '));
    to_nfd(chars);
    CHECK(text_of(chars) == hex_list(row[1], ' '));
    const auto expected = hex_list(row.size() > 2 ? row[2] : "", ' ');
    CHECK(normalized({}, hex_list(row[0], ' ')) == expected);
  }
}

TEST_CASE("normalised characters remember their place, also where they were decomposed") {
  // U+00E9 is e + U+0301; the mark drops out, the neighbours keep their places.
  auto chars = chars_of(U"a\u00e9\u0007b");
  normalize({}, chars);
  REQUIRE(chars.size() == 3);
  CHECK(chars[1].code_point == U'e');
  CHECK(chars[1].source == 1);
  CHECK(chars[2].source == 3);
  // A Hangul syllable becomes three jamo, all of the same character.
  chars = chars_of(U"x\ud55c");
  normalize({}, chars);
  REQUIRE(chars.size() == 4);
  CHECK(chars[3].source == 1);
}

TEST_CASE("a capital whose lower case has two code points may occur often") {
  // 100,000 of U+0130 in one text: i + U+0307 each, in time that does not grow with the square.
  const auto text = normalized({true, true, false, true}, std::u32string(100000, U'\u0130'));
  CHECK(text.size() == 200000);
  CHECK(text.substr(199998) == U"i\u0307");
  CHECK(text.substr(0, 2) == U"i\u0307");
}

}  // namespace
}  // namespace minim::text
