#include <algorithm>
#include <utility>

#include "core/error.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

// Encoding of Tokenizer: the way with tokens and offsets, and the fast one to ids alone.
namespace minim::text {
namespace {

// The text to encode: itself, or a copy in `storage` without ill-formed bytes.
std::string_view checked_text(std::string_view text, InvalidUtf8 policy, std::string& storage) {
  const size_t bad = validate_utf8(text);
  if (bad == std::string_view::npos) return text;
  if (policy == InvalidUtf8::replace) {
    storage = replace_invalid_utf8(text);
    return storage;
  }
  const bool utf16 = text.starts_with("\xFF\xFE") || text.starts_with("\xFE\xFF");
  fail("tokenizer: the text is not UTF-8 at byte offset {} (byte 0x{:02X}){}", bad,
       unsigned(uint8_t(text[bad])), utf16 ? "; it looks like UTF-16, convert it to UTF-8" : "");
}

// Appends the code points of `text`, numbered from `first` on.
void append_chars(std::string_view text, uint32_t first, std::vector<NormalizedChar>& chars) {
  for (size_t at = 0; at < text.size();) {
    const DecodedUtf8 next = decode_utf8(text, at);
    chars.push_back({next.code_point, first++});
    at += size_t(next.length);
  }
}

// Normalised characters as bytes, with the index of the character that each byte belongs to.
struct Utf8Chars {
  std::string bytes;
  std::vector<uint32_t> char_of_byte;

  explicit Utf8Chars(std::span<const NormalizedChar> chars) {
    for (size_t i = 0; i < chars.size(); ++i) {
      append_utf8(bytes, chars[i].code_point);
      char_of_byte.resize(bytes.size(), uint32_t(i));
    }
  }
};

Span source_span(std::span<const NormalizedChar> chars) {
  return {chars.front().source, int64_t(chars.back().source) + 1};
}

// Calls word(first, last) for each word of the characters: what lies between white space, with
// punctuation on its own.
template <class F>
void split_words(std::span<const NormalizedChar> chars, const F& word) {
  size_t begin = 0;
  for (size_t i = 0; i < chars.size(); ++i) {
    const Boundary boundary = boundary_of(chars[i].code_point);
    if (boundary == Boundary::none) continue;
    if (i > begin) word(begin, i);
    if (boundary == Boundary::punctuation) word(i, i + 1);
    begin = i + 1;
  }
  if (chars.size() > begin) word(begin, chars.size());
}

// Byte offset of each code point of a text, and of its end.
std::vector<int64_t> byte_starts(std::string_view text) {
  std::vector<int64_t> starts;
  for (size_t at = 0; at < text.size(); ++at)
    if ((uint8_t(text[at]) & 0xC0) != 0x80) starts.push_back(int64_t(at));
  starts.push_back(int64_t(text.size()));
  return starts;
}

// Keeps `count` tokens of a list at the side that truncation spares.
template <class T>
void keep(std::vector<T>& tokens, size_t from, int64_t count, Side side) {
  const auto begin = tokens.begin() + std::ptrdiff_t(from);
  const auto excess = tokens.end() - begin - std::ptrdiff_t(count);
  if (side == Side::right)
    tokens.erase(tokens.end() - excess, tokens.end());
  else
    tokens.erase(begin, begin + excess);
}

}  // namespace

std::vector<Tokenizer::Token> Tokenizer::tokens_of(std::string_view text,
                                                   const EncodeOptions& options) const {
  std::vector<Token> tokens;
  std::vector<WordPiece::Piece> pieces;
  const auto add_words = [&](std::span<const NormalizedChar> chars) {
    split_words(chars, [&](size_t first, size_t last) {
      const auto word = chars.subspan(first, last - first);
      const Utf8Chars utf8(word);
      pieces.clear();
      wordpiece_.segment(utf8.bytes, int64_t(word.size()), pieces);
      for (const WordPiece::Piece& piece : pieces) {
        const uint32_t begin = utf8.char_of_byte[piece.begin];
        const uint32_t end = utf8.char_of_byte[piece.end - 1] + 1;
        tokens.push_back({piece.id, source_span(word.subspan(begin, end - begin)), {}});
      }
    });
  };
  const auto add_normalized = [&](std::span<const NormalizedChar> chars) {
    if (normalized_.empty()) return add_words(chars);
    const Utf8Chars utf8(chars);
    std::vector<AddedTokenMatcher::Part> parts;
    normalized_.split(utf8.bytes, options.split_special_tokens, parts);
    for (const auto& part : parts) {
      const uint32_t begin = utf8.char_of_byte[part.begin];
      const uint32_t end = utf8.char_of_byte[part.end - 1] + 1;
      const auto range = chars.subspan(begin, end - begin);
      if (part.id < 0)
        add_words(range);
      else
        tokens.push_back(
            {part.id, source_span(range), utf8.bytes.substr(part.begin, part.end - part.begin)});
    }
  };

  std::vector<AddedTokenMatcher::Part> parts;
  raw_.split(text, options.split_special_tokens, parts);
  std::vector<NormalizedChar> chars;
  uint32_t position = 0;  // in code points
  for (const auto& part : parts) {
    const std::string_view bytes = text.substr(part.begin, part.end - part.begin);
    chars.clear();
    append_chars(bytes, position, chars);
    const uint32_t end = position + uint32_t(chars.size());
    if (part.id >= 0) {
      tokens.push_back({part.id, {position, end}, std::string(bytes)});
    } else {
      normalize(config_.normalizer, chars);
      add_normalized(chars);
    }
    position = end;
  }
  return tokens;
}

Encoding Tokenizer::encode_texts(std::span<const std::string_view> texts,
                                 const EncodeOptions& options) const {
  const bool pair = texts.size() == 2;
  const int64_t room = budget(pair, options);
  std::string storage[2];
  std::vector<Token> tokens[2];
  std::vector<int64_t> starts[2];
  for (size_t i = 0; i < texts.size(); ++i) {
    const std::string_view text = checked_text(texts[i], options.invalid_utf8, storage[i]);
    tokens[i] = tokens_of(text, options);
    starts[i] = byte_starts(text);
  }
  const auto counts = [&](size_t i) { return int64_t(tokens[i].size()); };
  const KeptTokens kept = truncate(counts(0), pair ? counts(1) : -1, room, options.truncation);
  const Side side = options.truncation_side.value_or(config_.truncation_side);

  Encoding encoding;
  encoding.truncated = counts(0) - kept.first + (pair ? counts(1) - kept.second : 0);
  keep(tokens[0], 0, kept.first, side);
  if (pair) keep(tokens[1], 0, kept.second, side);
  const auto add = [&](int32_t id, std::string string, int32_t type, Span chars, Span bytes) {
    encoding.ids.push_back(id);
    encoding.tokens.push_back(std::move(string));
    encoding.type_ids.push_back(type);
    encoding.attention_mask.push_back(1);
    encoding.offsets.push_back(chars);
    encoding.byte_offsets.push_back(bytes);
  };
  for (const TemplatePiece& piece : template_of(pair)) {
    if (piece.text < 0) {
      for (size_t i = 0; options.add_special_tokens && i < piece.ids.size(); ++i)
        add(piece.ids[i], piece.tokens[i], piece.type_id, {0, 0}, {0, 0});
      continue;
    }
    const auto& start = starts[size_t(piece.text)];
    for (const Token& token : tokens[size_t(piece.text)]) {
      const Span bytes{start[size_t(token.offsets.begin)], start[size_t(token.offsets.end)]};
      add(token.id, token.string.empty() ? token_string(token.id) : token.string, piece.type_id,
          token.offsets, bytes);
    }
  }
  return encoding;
}

Encoding Tokenizer::encode(std::string_view text, const EncodeOptions& options) const {
  return encode_texts({&text, 1}, options);
}

Encoding Tokenizer::encode(std::string_view text, std::string_view pair,
                           const EncodeOptions& options) const {
  const std::string_view texts[] = {text, pair};
  return encode_texts(texts, options);
}

// Appends the ids of one text without special tokens around it.
void Tokenizer::append_ids(std::string_view text, const EncodeOptions& options,
                           std::vector<int32_t>& ids) const {
  std::string storage;
  text = checked_text(text, options.invalid_utf8, storage);
  if (normalized_.empty() && !raw_.may_contain(text)) {
    id_encoder_.encode(wordpiece_, text, ids);
  } else if (normalized_.empty()) {
    std::vector<AddedTokenMatcher::Part> parts;
    raw_.split(text, options.split_special_tokens, parts);
    for (const auto& part : parts) {
      if (part.id >= 0)
        ids.push_back(part.id);
      else
        id_encoder_.encode(wordpiece_, text.substr(part.begin, part.end - part.begin), ids);
    }
  } else {
    for (const Token& token : tokens_of(text, options))
      ids.push_back(token.id);
  }
}

int64_t Tokenizer::encode_ids(std::string_view text, std::vector<int32_t>& ids,
                              const EncodeOptions& options) const {
  const int64_t room = budget(false, options);
  const Side side = options.truncation_side.value_or(config_.truncation_side);
  int64_t truncated = 0;
  ids.clear();
  for (const TemplatePiece& piece : config_.single) {
    if (piece.text < 0) {
      if (options.add_special_tokens) ids.insert(ids.end(), piece.ids.begin(), piece.ids.end());
      continue;
    }
    const size_t before = ids.size();
    append_ids(text, options, ids);
    const auto count = int64_t(ids.size() - before);
    const int64_t kept = truncate(count, -1, room, options.truncation).first;
    truncated = count - kept;
    if (truncated > 0) keep(ids, before, kept, side);
  }
  return truncated;
}

int64_t Tokenizer::encode_ids(std::string_view text, std::string_view pair,
                              std::vector<int32_t>& ids, std::vector<int32_t>& type_ids,
                              const EncodeOptions& options) const {
  thread_local std::vector<int32_t> contents[2];
  const int64_t room = budget(true, options);
  for (const int i : {0, 1}) {
    contents[i].clear();
    append_ids(i == 0 ? text : pair, options, contents[i]);
  }
  const auto first = int64_t(contents[0].size()), second = int64_t(contents[1].size());
  const KeptTokens kept = truncate(first, second, room, options.truncation);
  const Side side = options.truncation_side.value_or(config_.truncation_side);
  keep(contents[0], 0, kept.first, side);
  keep(contents[1], 0, kept.second, side);
  ids.clear();
  type_ids.clear();
  for (const TemplatePiece& piece : config_.pair) {
    if (piece.text < 0 && !options.add_special_tokens) continue;
    const auto& source = piece.text < 0 ? piece.ids : contents[piece.text];
    ids.insert(ids.end(), source.begin(), source.end());
    type_ids.resize(ids.size(), piece.type_id);
  }
  return first + second - kept.first - kept.second;
}

}  // namespace minim::text
