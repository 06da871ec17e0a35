#include "text/wordpiece.h"

#include <algorithm>
#include <utility>

#include "core/error.h"

namespace minim::text {
namespace {

Trie build_trie(const std::vector<std::string>& pieces, std::string_view name) {
  std::vector<Trie::Entry> entries;
  entries.reserve(pieces.size());
  for (size_t id = 0; id < pieces.size(); ++id)
    if (!pieces[id].empty()) entries.push_back({pieces[id], int32_t(id)});
  std::sort(entries.begin(), entries.end(), [](const Trie::Entry& a, const Trie::Entry& b) {
    return std::pair(a.key, a.value) < std::pair(b.key, b.value);
  });
  for (size_t i = 1; i < entries.size(); ++i)
    check(entries[i - 1].key != entries[i].key, "{}: ids {} and {} are both \"{}\"", name,
          entries[i - 1].value, entries[i].value, entries[i].key);
  return Trie(std::move(entries));
}

}  // namespace

WordPiece::WordPiece(const std::vector<std::string>& pieces, Options options, std::string_view name)
    : options_(std::move(options)), trie_(build_trie(pieces, name)) {
  unk_id_ = find(options_.unk_token);
  check(unk_id_ >= 0, "{}: the vocabulary has no unknown token {}", name, options_.unk_token);
  inside_ = trie_.walk(Trie::root_state, options_.continuing_subword_prefix);
}

// Calls emit(id, begin, end) for each piece; false where nothing fits (some pieces may have been
// emitted by then).
template <class Map, class Emit>
bool WordPiece::greedy(std::string_view word, const Map& map, const Emit& emit) const {
  for (size_t begin = 0; begin < word.size();) {
    int32_t node = begin == 0 ? Trie::root_state : inside_;
    int32_t id = -1;
    size_t end = begin;
    for (size_t i = begin; i < word.size();) {
      node = trie_.step(node, map(uint8_t(word[i++])));
      if (node == Trie::dead_state) break;
      if (const int32_t value = trie_.value(node); value >= 0) id = value, end = i;
    }
    if (id < 0) return false;
    emit(id, begin, end);
    begin = end;
  }
  return true;
}

void WordPiece::segment(std::string_view word, int64_t chars, std::vector<Piece>& to) const {
  const size_t before = to.size();
  const auto same = [](uint8_t byte) { return byte; };
  const auto emit = [&](int32_t id, size_t begin, size_t end) {
    to.push_back({id, uint32_t(begin), uint32_t(end)});
  };
  if (chars <= options_.max_input_chars_per_word && greedy(word, same, emit)) return;
  to.resize(before);
  to.push_back({unk_id_, 0, uint32_t(word.size())});
}

void WordPiece::segment(std::string_view word, int64_t chars, const uint8_t* map,
                        std::vector<int32_t>& to) const {
  const size_t before = to.size();
  const auto mapped = [map](uint8_t byte) { return map[byte]; };
  const auto emit = [&](int32_t id, size_t, size_t) { to.push_back(id); };
  if (chars <= options_.max_input_chars_per_word && greedy(word, mapped, emit)) return;
  to.resize(before);
  to.push_back(unk_id_);
}

}  // namespace minim::text
