#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "core/error.h"
#include "text/wordpiece.h"

namespace minim::text {
namespace {

// [UNK] [CLS] ... of BERT's own tests: "UNwant\u00E9d,running" is 9 6 7 12 10 11.
const std::vector<std::string> small_vocabulary = {"[UNK]", "[CLS]", "[SEP]", "want", "##want",
                                                   "##ed",  "wa",    "un",    "runn", "##ing",
                                                   ",",     "low",   "lowest"};

std::vector<std::string> names(const std::vector<std::string>& pieces, const WordPiece& wordpiece,
                               const std::string& word) {
  std::vector<WordPiece::Piece> found;
  wordpiece.segment(word, int64_t(word.size()), found);
  std::vector<std::string> list;
  for (const auto& piece : found)
    list.push_back(pieces[size_t(piece.id)]);
  return list;
}

// The algorithm as its paper states it: try every end from the right.
std::vector<std::string> greedy(const std::vector<std::string>& pieces, const std::string& word) {
  std::vector<std::string> list;
  for (size_t begin = 0; begin < word.size();) {
    size_t end = word.size();
    for (; end > begin; --end) {
      const std::string piece = (begin > 0 ? "##" : "") + word.substr(begin, end - begin);
      if (std::find(pieces.begin(), pieces.end(), piece) == pieces.end()) continue;
      list.push_back(piece);
      break;
    }
    if (end == begin) return {"[UNK]"};
    begin = end;
  }
  return list;
}

TEST_CASE("a word is cut into the longest pieces from the left") {
  const WordPiece wordpiece(small_vocabulary, {}, "test");
  CHECK(names(small_vocabulary, wordpiece, "unwanted") ==
        std::vector<std::string>{"un", "##want", "##ed"});
  CHECK(names(small_vocabulary, wordpiece, "running") == std::vector<std::string>{"runn", "##ing"});
  CHECK(names(small_vocabulary, wordpiece, "lowest") == std::vector<std::string>{"lowest"});
  // One place that nothing fits makes the whole word unknown, also behind pieces that fit.
  CHECK(names(small_vocabulary, wordpiece, "unwantedX") == std::vector<std::string>{"[UNK]"});
  // Greedy does not go back: "lowe" has "low", then no "##e".
  CHECK(names(small_vocabulary, wordpiece, "lowe") == std::vector<std::string>{"[UNK]"});
}

TEST_CASE("pieces know the bytes they stand for, an unknown word stands for all of them") {
  const WordPiece wordpiece(small_vocabulary, {}, "test");
  std::vector<WordPiece::Piece> found;
  wordpiece.segment("unwanted", 8, found);
  REQUIRE(found.size() == 3);
  CHECK(found[1].begin == 2);
  CHECK(found[1].end == 6);
  found.clear();
  wordpiece.segment("wax", 3, found);
  REQUIRE(found.size() == 1);
  CHECK(found[0].id == 0);
  CHECK(found[0].begin == 0);
  CHECK(found[0].end == 3);
}

TEST_CASE("the trie gives what trying every end gives, on random words and vocabularies") {
  std::mt19937 random(7);
  const auto random_word = [&](size_t most) {
    std::string word(1 + random() % most, 'a');
    for (char& c : word)
      c = char('a' + random() % 3);
    return word;
  };
  for (int round = 0; round < 30; ++round) {
    std::vector<std::string> pieces{"[UNK]"};
    const size_t size = 3 + random() % 60;
    while (pieces.size() < size) {
      const std::string piece = (random() % 2 ? "##" : "") + random_word(5);
      if (std::find(pieces.begin(), pieces.end(), piece) == pieces.end()) pieces.push_back(piece);
    }
    const WordPiece wordpiece(pieces, {}, "test");
    for (size_t id = 0; id < pieces.size(); ++id)
      CHECK(wordpiece.find(pieces[id]) == int32_t(id));
    for (int i = 0; i < 200; ++i) {
      const std::string word = random_word(12);
      CAPTURE(word);
      CHECK(names(pieces, wordpiece, word) == greedy(pieces, word));
    }
  }
}

TEST_CASE("a trie finds its keys and nothing else, whatever bytes they have") {
  std::mt19937 random(11);
  std::vector<std::string> keys;
  for (int i = 0; i < 3000; ++i) {
    std::string key(1 + random() % 6, ' ');
    for (char& c : key)
      c = char(random() % 256);
    keys.push_back(key);
  }
  std::sort(keys.begin(), keys.end());
  keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
  std::vector<Trie::Entry> entries;
  for (size_t i = 0; i < keys.size(); i += 2)
    entries.push_back({keys[i], int32_t(i)});
  const Trie trie(entries);
  for (size_t i = 0; i < keys.size(); ++i)
    CHECK(trie.find(keys[i]) == (i % 2 == 0 ? int32_t(i) : -1));
  CHECK(trie.find("") == -1);
  for (int byte = 0; byte < 256; ++byte)
    CHECK(trie.step(Trie::dead_state, uint8_t(byte)) == Trie::dead_state);
}

TEST_CASE("words above the limit of characters are unknown") {
  const std::vector<std::string> pieces{"[UNK]", "a", "##a"};
  const WordPiece wordpiece(pieces, {}, "test");
  CHECK(names(pieces, wordpiece, std::string(100, 'a')).size() == 100);
  CHECK(names(pieces, wordpiece, std::string(101, 'a')) == std::vector<std::string>{"[UNK]"});
}

TEST_CASE("a vocabulary that contradicts itself is refused") {
  CHECK_THROWS_WITH_AS(WordPiece({"[UNK]", "a", "a"}, {}, "test"),
                       "test: ids 1 and 2 are both \"a\"", Error);
  CHECK_THROWS_WITH_AS(WordPiece({"a"}, {}, "test"),
                       "test: the vocabulary has no unknown token [UNK]", Error);
}

}  // namespace
}  // namespace minim::text
