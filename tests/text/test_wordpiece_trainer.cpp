#include <algorithm>
#include <set>

#include "core/error.h"
#include "tests/text/tokenizer_data.h"
#include "text/wordpiece_trainer.h"

namespace minim::text {
namespace {

std::vector<std::string> trained(const std::vector<std::string>& texts,
                                 const WordPieceTrainer::Options& options) {
  WordPieceTrainer trainer(options);
  for (const std::string& text : texts)
    trainer.add(text);
  return trainer.train();
}

// Lines of real text from the tokenizer references.
std::vector<std::string> real_texts() {
  std::vector<std::string> texts;
  for (const auto& row : json_lines(tokenizer_data("real_text.jsonl")))
    texts.push_back(row["text"].get<std::string>());
  return texts;
}

TEST_CASE("the most frequent neighbours are joined first") {
  // low x5, lower x2, newest x6 (Sennrich et al. 2016, figure 1, shortened). Pairs of the start:
  // ##e ##s, ##s ##t, n ##e, ##e ##w, ##w ##e all 6 (##w ##e also 2 in lower: 8). So ##we is first.
  std::vector<std::string> texts;
  for (const auto& [text, count] : {std::pair{"low", 5}, {"lower", 2}, {"newest", 6}})
    texts.insert(texts.end(), size_t(count), text);
  // Characters: e l n o r s t w, and inside words e o r s t w.
  const auto pieces = trained(texts, {.vocab_size = 5 + 8 + 6 + 2});
  const std::vector<std::string> expected = {
      "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "e",   "##e", "l",   "n",    "o", "##o",
      "r",     "##r",   "s",     "##s",   "t",      "##t", "w",   "##w", "##we", "lo"};
  CHECK(pieces == expected);
}

TEST_CASE("a vocabulary does not depend on the order of the texts") {
  auto texts = real_texts();
  const auto pieces = trained(texts, {.vocab_size = 2000});
  CHECK(pieces.size() == 2000);
  CHECK(std::set<std::string>(pieces.begin(), pieces.end()).size() == 2000);
  std::reverse(texts.begin(), texts.end());
  CHECK(trained(texts, {.vocab_size = 2000}) == pieces);
}

TEST_CASE("texts that trained a vocabulary have no unknown words in it") {
  const auto texts = real_texts();
  const Tokenizer tokenizer(TokenizerConfig::bert(trained(texts, {.vocab_size = 3000}), true));
  CHECK(tokenizer.pad_token_id() == 0);
  CHECK(tokenizer.unk_token_id() == 1);
  CHECK(tokenizer.cls_token_id() == 2);
  CHECK(tokenizer.sep_token_id() == 3);
  CHECK(tokenizer.mask_token_id() == 4);
  std::vector<int32_t> ids;
  for (const std::string& text : texts) {
    tokenizer.encode_ids(text, ids);
    CHECK(std::count(ids.begin(), ids.end(), 1) == 0);
  }
}

TEST_CASE("rare characters are left out, and the words that have them") {
  const std::vector<std::string> texts(3, "aa aa aa ab");
  const auto pieces = trained(texts, {.vocab_size = 100, .limit_alphabet = 1});
  CHECK(pieces ==
        std::vector<std::string>{"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "##a", "aa"});
}

TEST_CASE("pairs below the least frequency are not joined") {
  CHECK(trained({"ab", "cd", "cd"}, {.vocab_size = 100, .min_frequency = 2}).back() == "cd");
  const auto all = trained({"ab", "cd", "cd"}, {.vocab_size = 100});
  CHECK(std::find(all.begin(), all.end(), "ab") != all.end());
}

TEST_CASE("a trainer refuses sizes and texts it cannot use") {
  CHECK_THROWS_WITH_AS(WordPieceTrainer({.vocab_size = 5}),
                       "wordpiece trainer: vocab_size 5 leaves no room beside the 5 special tokens",
                       Error);
  CHECK_THROWS_WITH_AS(trained({" ", ""}, {}), "wordpiece trainer: the texts have no words", Error);
  CHECK_THROWS_WITH_AS(trained({"abc"}, {.vocab_size = 9}),
                       "wordpiece trainer: 5 special tokens and 5 characters do not fit vocab_size "
                       "9; raise it or lower limit_alphabet",
                       Error);
  CHECK_THROWS_WITH_AS(trained({"a\xFF"}, {}),
                       "wordpiece trainer: the text is not UTF-8 at byte offset 1", Error);
}

}  // namespace
}  // namespace minim::text
