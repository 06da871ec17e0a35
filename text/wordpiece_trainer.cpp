#include "text/wordpiece_trainer.h"

#include <algorithm>
#include <map>
#include <queue>
#include <set>
#include <tuple>
#include <utility>

#include "core/error.h"
#include "text/unicode.h"
#include "text/utf8.h"

namespace minim::text {
namespace {

constexpr const char* special_tokens[] = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};

using Pair = std::pair<int32_t, int32_t>;

struct Word {
  std::vector<int32_t> pieces;
  int64_t count;
};

// A pair as it was counted when it was queued; entries whose count has changed since are stale.
struct Candidate {
  int64_t count;
  Pair pair;
  // The most frequent pair is the greatest; among equals the one with the smallest ids.
  bool operator<(const Candidate& other) const {
    return std::tie(count, other.pair) < std::tie(other.count, pair);
  }
};

// Pieces under construction, and the words spelled in them.
class Merger {
 public:
  Merger(std::vector<std::string>& pieces, std::vector<Word> words)
      : pieces_(pieces), words_(std::move(words)) {
    for (size_t i = 0; i < pieces_.size(); ++i)
      ids_.emplace(pieces_[i], int32_t(i));
    for (size_t w = 0; w < words_.size(); ++w)
      for (size_t i = 1; i < words_[w].pieces.size(); ++i)
        count({words_[w].pieces[i - 1], words_[w].pieces[i]}, words_[w].count, w);
    for (const auto& [pair, statistics] : pairs_)
      queue_.push({statistics.count, pair});
  }

  // Joins the most frequent pair that occurs at least `least` times; false when there is none.
  bool merge_best(int64_t least) {
    while (!queue_.empty()) {
      const Candidate best = queue_.top();
      queue_.pop();
      const auto found = pairs_.find(best.pair);
      if (found == pairs_.end() || found->second.count != best.count) continue;
      if (best.count < least) return false;
      merge(best.pair, std::move(found->second.words));
      return true;
    }
    return false;
  }

 private:
  struct Statistics {
    int64_t count = 0;
    std::set<size_t> words;  // where the pair is or was
  };

  void count(Pair pair, int64_t change, size_t word) {
    Statistics& statistics = pairs_[pair];
    statistics.count += change;
    if (change > 0) statistics.words.insert(word);
  }

  void merge(Pair pair, std::set<size_t> places) {
    const std::string& right = pieces_[size_t(pair.second)];
    std::string joined = pieces_[size_t(pair.first)] + right.substr(2);  // without its "##"
    const auto [entry, is_new] = ids_.try_emplace(joined, int32_t(pieces_.size()));
    if (is_new) pieces_.push_back(std::move(joined));
    const int32_t id = entry->second;
    std::set<Pair> changed;
    for (const size_t w : places) {
      Word& word = words_[w];
      const auto recount = [&](int64_t change) {
        for (size_t i = 1; i < word.pieces.size(); ++i) {
          const Pair neighbours{word.pieces[i - 1], word.pieces[i]};
          count(neighbours, change, w);
          changed.insert(neighbours);
        }
      };
      recount(-word.count);
      size_t kept = 0;
      for (size_t i = 0; i < word.pieces.size(); ++i) {
        const bool fits = i + 1 < word.pieces.size() && word.pieces[i] == pair.first &&
                          word.pieces[i + 1] == pair.second;
        word.pieces[kept++] = fits ? id : word.pieces[i];
        i += fits;
      }
      word.pieces.resize(kept);
      recount(word.count);
    }
    for (const Pair& neighbours : changed) {
      const auto found = pairs_.find(neighbours);
      if (found->second.count == 0)
        pairs_.erase(found);
      else
        queue_.push({found->second.count, neighbours});
    }
  }

  std::vector<std::string>& pieces_;
  std::vector<Word> words_;
  std::unordered_map<std::string, int32_t> ids_;
  std::map<Pair, Statistics> pairs_;
  std::priority_queue<Candidate> queue_;
};

std::vector<NormalizedChar> decoded(std::string_view text) {
  std::vector<NormalizedChar> chars;
  for (size_t at = 0; at < text.size();) {
    const DecodedUtf8 next = decode_utf8(text, at);
    chars.push_back({next.code_point, 0});
    at += size_t(next.length);
  }
  return chars;
}

std::string spelled(char32_t c, bool inside) {
  std::string piece = inside ? "##" : "";
  append_utf8(piece, c);
  return piece;
}

// The most frequent characters, in code-point order.
std::set<char32_t> alphabet_of(const std::map<char32_t, int64_t>& counts, int64_t limit) {
  std::vector<std::pair<int64_t, char32_t>> order;  // the rarest last, then the highest
  for (const auto& [c, count] : counts)
    order.emplace_back(-count, c);
  std::sort(order.begin(), order.end());
  if (int64_t(order.size()) > limit) order.resize(size_t(limit));
  std::set<char32_t> alphabet;
  for (const auto& [count, c] : order)
    alphabet.insert(c);
  return alphabet;
}

}  // namespace

WordPieceTrainer::WordPieceTrainer(Options options) : options_(options) {
  check(options_.vocab_size > int64_t(std::size(special_tokens)),
        "wordpiece trainer: vocab_size {} leaves no room beside the {} special tokens",
        options_.vocab_size, std::size(special_tokens));
  check(options_.limit_alphabet >= 1, "wordpiece trainer: limit_alphabet is {}, must be at least 1",
        options_.limit_alphabet);
}

void WordPieceTrainer::add(std::string_view text) {
  if (const size_t bad = validate_utf8(text); bad != std::string_view::npos)
    fail("wordpiece trainer: the text is not UTF-8 at byte offset {}", bad);
  std::vector<NormalizedChar> chars = decoded(text);
  normalize(options_.normalizer, chars);
  std::string word;
  int64_t length = 0;
  const auto flush = [&] {
    if (length > 0 && length <= options_.max_input_chars_per_word) ++counts_[word];
    word.clear();
    length = 0;
  };
  for (const NormalizedChar c : chars) {
    const Boundary boundary = boundary_of(c.code_point);
    if (boundary != Boundary::none) flush();
    if (boundary == Boundary::space) continue;
    append_utf8(word, c.code_point);
    ++length;
    if (boundary == Boundary::punctuation) flush();
  }
  flush();
}

std::vector<std::string> WordPieceTrainer::train() const {
  check(!counts_.empty(), "wordpiece trainer: the texts have no words");
  // Sorted, so that neither the order of texts nor that of a hash table shows.
  const std::map<std::string, int64_t> words(counts_.begin(), counts_.end());
  std::map<char32_t, int64_t> frequency;
  for (const auto& [word, count] : words)
    for (const NormalizedChar c : decoded(word))
      frequency[c.code_point] += count;
  const std::set<char32_t> alphabet = alphabet_of(frequency, options_.limit_alphabet);

  // Spell the words in characters; a word with a character outside the alphabet is left out.
  std::set<std::pair<char32_t, bool>> characters;  // and whether inside a word
  for (const char32_t c : alphabet)
    characters.emplace(c, false);
  std::vector<std::pair<std::vector<NormalizedChar>, int64_t>> spellings;
  for (const auto& [word, count] : words) {
    auto chars = decoded(word);
    if (!std::all_of(chars.begin(), chars.end(),
                     [&](NormalizedChar c) { return alphabet.contains(c.code_point); }))
      continue;
    for (size_t i = 1; i < chars.size(); ++i)
      characters.emplace(chars[i].code_point, true);
    spellings.emplace_back(std::move(chars), count);
  }
  std::vector<std::string> pieces(std::begin(special_tokens), std::end(special_tokens));
  std::map<std::pair<char32_t, bool>, int32_t> ids;
  for (const auto& [c, inside] : characters) {
    ids[{c, inside}] = int32_t(pieces.size());
    pieces.push_back(spelled(c, inside));
  }
  check(int64_t(pieces.size()) <= options_.vocab_size,
        "wordpiece trainer: {} special tokens and {} characters do not fit vocab_size {}; raise it "
        "or lower limit_alphabet",
        std::size(special_tokens), characters.size(), options_.vocab_size);

  std::vector<Word> training;
  for (const auto& [chars, count] : spellings) {
    Word& word = training.emplace_back(Word{{}, count});
    for (size_t i = 0; i < chars.size(); ++i)
      word.pieces.push_back(ids[{chars[i].code_point, i > 0}]);
  }
  Merger merger(pieces, std::move(training));
  while (int64_t(pieces.size()) < options_.vocab_size && merger.merge_best(options_.min_frequency))
    continue;
  return pieces;
}

}  // namespace minim::text
