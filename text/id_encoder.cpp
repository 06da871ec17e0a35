#include "text/id_encoder.h"

#include "text/unicode.h"
#include "text/utf8.h"

namespace minim::text {

IdEncoder::IdEncoder(const NormalizerOptions& options, const WordPiece& wordpiece)
    : options_(options) {
  for (int byte = 0; byte < 256; ++byte) {
    lower_[size_t(byte)] = identity_[size_t(byte)] = uint8_t(byte);
    kind_[size_t(byte)] = other;
    if (byte >= 128) continue;
    const auto c = char32_t(byte);
    const Boundary boundary = boundary_of(c);
    const bool deleted = options.clean_text && (char_class(c) & control_class);
    kind_[size_t(byte)] = deleted                             ? other
                          : boundary == Boundary::space       ? space
                          : boundary == Boundary::punctuation ? punctuation
                                                              : letter;
    if (options.lowercase && byte >= 'A' && byte <= 'Z') lower_[size_t(byte)] = uint8_t(byte + 32);
    const char word = char(byte);
    const int32_t id = wordpiece.find({&word, 1});
    const bool fits = id >= 0 && wordpiece.options().max_input_chars_per_word >= 1;
    punctuation_[size_t(byte)] = fits ? id : wordpiece.unk_id();
  }
}

void IdEncoder::encode(const WordPiece& wordpiece, std::string_view text,
                       std::vector<int32_t>& ids) const {
  const Trie& trie = wordpiece.trie();
  const auto longest = size_t(wordpiece.options().max_input_chars_per_word);
  const auto byte = [&](size_t at) { return uint8_t(text[at]); };
  for (size_t at = 0;;) {
    while (at < text.size() && kind_[byte(at)] == space)
      ++at;
    if (at == text.size()) return;
    const size_t begin = at;
    // Most words are pieces: walk the vocabulary while looking for the word's end.
    int32_t node = Trie::root_state;
    for (; at < text.size() && kind_[byte(at)] == letter; ++at)
      node = trie.step(node, lower_[byte(at)]);
    if (at < text.size() && kind_[byte(at)] == other) {
      at = encode_mixed_word(wordpiece, text, begin, at, ids);
    } else if (at > begin) {
      const int32_t id = trie.value(node);
      if (id >= 0 && at - begin <= longest)
        ids.push_back(id);
      else
        wordpiece.segment(text.substr(begin, at - begin), int64_t(at - begin), lower_.data(), ids);
    }
    if (at < text.size() && kind_[byte(at)] == punctuation) ids.push_back(punctuation_[byte(at++)]);
  }
}

// A word from `begin` on that is ASCII up to `at`, where something else comes. Returns where the
// ASCII space or punctuation behind it is, or the text's end. Marks only change places within a run
// without ASCII letters, so that runs can be normalised one by one.
size_t IdEncoder::encode_mixed_word(const WordPiece& wordpiece, std::string_view text, size_t begin,
                                    size_t at, std::vector<int32_t>& ids) const {
  thread_local Word word;
  thread_local std::vector<NormalizedChar> run;
  const auto flush = [&] {
    if (word.chars > 0) wordpiece.segment(word.bytes, word.chars, identity_.data(), ids);
    word.bytes.clear();
    word.chars = 0;
  };
  const auto add_letter = [&](uint8_t letter) {
    word.bytes += char(lower_[letter]);
    ++word.chars;
  };
  word.bytes.clear();
  word.chars = 0;
  for (; begin < at; ++begin)
    add_letter(uint8_t(text[begin]));
  while (at < text.size()) {
    const Kind kind = kind_[uint8_t(text[at])];
    if (kind == space || kind == punctuation) break;
    if (kind == letter) {
      add_letter(uint8_t(text[at++]));
      continue;
    }
    run.clear();
    while (at < text.size() && kind_[uint8_t(text[at])] == other) {
      const DecodedUtf8 next = decode_utf8(text, at);
      run.push_back({next.code_point, 0});
      at += size_t(next.length);
    }
    normalize(options_, run);
    for (const NormalizedChar c : run) {
      const Boundary boundary = boundary_of(c.code_point);
      if (boundary != Boundary::none) flush();
      if (boundary == Boundary::space) continue;
      append_utf8(word.bytes, c.code_point);
      ++word.chars;
      if (boundary == Boundary::punctuation) flush();
    }
  }
  flush();
  return at;
}

}  // namespace minim::text
