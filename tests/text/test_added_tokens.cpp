#include <string>
#include <vector>

#include "core/error.h"
#include "tests/text/tokenizer_data.h"
#include "text/added_tokens.h"
#include "text/tokenizer_files.h"

namespace minim::text {
namespace {

// The lower-casing tokenizer of tests/data/tokenizer_files with further added tokens.
Tokenizer with_added(std::vector<AddedToken> added) {
  TokenizerConfig config =
      load_tokenizer(MINIM_TEST_DATA "/tokenizer_files/json_only").tokenizer.config();
  for (AddedToken& token : added) {
    token.id = int32_t(config.pieces.size() + size_t(&token - added.data()));
    config.added_tokens.push_back(token);
  }
  return Tokenizer(std::move(config));
}

AddedToken plain(std::string content) {
  AddedToken token;
  token.content = std::move(content);
  token.special = false;
  return token;
}

struct Expected {
  const char* text;
  std::vector<std::string> tokens;
  std::vector<Span> offsets;
};

// Expected tokens and offsets: tokenizers 0.23.3 with the same files and add_tokens().
void check_all(const Tokenizer& tokenizer, const std::vector<Expected>& cases) {
  for (const Expected& expected : cases) {
    CAPTURE(expected.text);
    const auto encoding = tokenizer.encode(expected.text, {.add_special_tokens = false});
    CHECK(encoding.tokens == expected.tokens);
    CHECK(encoding.offsets == expected.offsets);
    std::vector<int32_t> ids;
    tokenizer.encode_ids(expected.text, ids, {.add_special_tokens = false});
    CHECK(ids == encoding.ids);
  }
}

TEST_CASE("added tokens take white space along where they are told to, and the longest one wins") {
  AddedToken stripping = plain("<x>");
  stripping.lstrip = stripping.rstrip = true;
  const auto tokenizer = with_added({stripping, plain("<xy"), plain("<xy>z")});
  check_all(tokenizer,
            {{"a <x> b", {"a", " <x> ", "b"}, {{0, 1}, {1, 6}, {6, 7}}},
             {"a\u00a0<x>\t\nb", {"a", "\u00a0<x>\t\n", "b"}, {{0, 1}, {1, 7}, {7, 8}}},
             {"a<x><x>b", {"a", "<x>", "<x>", "b"}, {{0, 1}, {1, 4}, {4, 7}, {7, 8}}},
             {"a <x> <x> b", {"a", " <x> ", "<x> ", "b"}, {{0, 1}, {1, 6}, {6, 10}, {10, 11}}},
             {"<xy>z", {"<xy>z"}, {{0, 5}}},
             {"<xy> a", {"<xy", "[UNK]", "a"}, {{0, 3}, {3, 4}, {5, 6}}},
             {"a <x>", {"a", " <x>"}, {{0, 1}, {1, 5}}}});
}

TEST_CASE("a single_word token is only found between characters that are not part of a word") {
  AddedToken word = plain("ab");
  word.single_word = true;
  // The vocabulary has neither a piece ab nor ##b: where the token is not found, the word is
  // unknown.
  check_all(with_added({word}),
            {{"ab", {"ab"}, {{0, 2}}},
             {"ab b", {"ab", "b"}, {{0, 2}, {3, 4}}},
             {"xab", {"[UNK]"}, {{0, 3}}},
             {"ab_", {"[UNK]", "[UNK]"}, {{0, 2}, {2, 3}}},
             {"ab,ab", {"ab", ",", "ab"}, {{0, 2}, {2, 3}, {3, 5}}},
             {"ab\u0301", {"[UNK]"}, {{0, 2}}},
             {"\u00e9ab", {"[UNK]"}, {{0, 3}}},
             {"ab\u24b6", {"[UNK]"}, {{0, 3}}},
             {"abab ab", {"[UNK]", "ab"}, {{0, 4}, {5, 7}}},
             {"\u4e2dab", {"\u4e2d", "[UNK]"}, {{0, 1}, {1, 3}}},
             {"ab\u200d", {"[UNK]"}, {{0, 2}}},
             {"ab\U00013573", {"[UNK]"}, {{0, 3}}}});  // a hieroglyph of Unicode 16
}

TEST_CASE("a normalised token is found in the normalised text, whatever case and accents it had") {
  AddedToken latin = plain("NewTok"), accented = plain("Caf\u00e9");
  latin.normalized = accented.normalized = true;
  check_all(with_added({latin, accented}),
            {{"NEWTOKnewtok", {"newtok", "newtok"}, {{0, 6}, {6, 12}}},
             {"a NewTok", {"a", "newtok"}, {{0, 1}, {2, 8}}},
             {"CAF\u00c9", {"cafe"}, {{0, 4}}},
             {"cafe\u0301s", {"cafe", "[UNK]"}, {{0, 4}, {5, 6}}},
             {"cafe [MASK] newtok", {"cafe", "[MASK]", "newtok"}, {{0, 4}, {5, 11}, {12, 18}}}});
}

TEST_CASE("special tokens are ordinary text on request, other added tokens are still found") {
  const auto tokenizer = with_added({plain("<x>")});
  const auto encoding =
      tokenizer.encode("[MASK]<x>", {.add_special_tokens = false, .split_special_tokens = true});
  CHECK(encoding.tokens == std::vector<std::string>{"[", "mask", "]", "<x>"});
}

TEST_CASE("added tokens whose ids do not fit the vocabulary are refused") {
  TokenizerConfig config = TokenizerConfig::bert({"[UNK]", "[CLS]", "[SEP]", "a"}, true);
  AddedToken token = plain("new");
  token.id = 7;
  config.added_tokens.push_back(token);
  CHECK_THROWS_WITH_AS(Tokenizer{config},
                       "tokenizer: added token new has id 7, the vocabulary ends at 3", Error);
  config.added_tokens.back() = plain("");
  CHECK_THROWS_WITH_AS(Tokenizer{config}, "tokenizer: the added token with id 0 is empty", Error);
}

}  // namespace
}  // namespace minim::text
