#include "text/added_tokens.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "text/unicode.h"
#include "text/utf8.h"

namespace minim::text {
namespace {

char32_t char_before(std::string_view text, size_t at) {
  do
    --at;
  while (at > 0 && (uint8_t(text[at]) & 0xC0) == 0x80);
  return decode_utf8(text, at).code_point;
}

bool is_space(char32_t c) {
  return char_class(c) & space_class;
}

}  // namespace

AddedTokenMatcher::AddedTokenMatcher(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)) {
  std::erase_if(tokens_, [](const AddedToken& token) { return token.content.empty(); });
  std::stable_sort(tokens_.begin(), tokens_.end(), [](const AddedToken& a, const AddedToken& b) {
    return a.content.size() > b.content.size();
  });
  for (const AddedToken& token : tokens_)
    first_byte_[uint8_t(token.content[0])] = true;
  if (std::count(first_byte_.begin(), first_byte_.end(), true) == 1)
    only_first_byte_ = uint8_t(tokens_[0].content[0]);
}

bool AddedTokenMatcher::may_contain(std::string_view text) const {
  if (tokens_.empty()) return false;
  if (only_first_byte_ >= 0)
    return std::memchr(text.data(), only_first_byte_, text.size()) != nullptr;
  return std::any_of(text.begin(), text.end(), [&](char c) { return first_byte_[uint8_t(c)]; });
}

const AddedToken* AddedTokenMatcher::match(std::string_view text, size_t at) const {
  if (!first_byte_[uint8_t(text[at])]) return nullptr;
  for (const AddedToken& token : tokens_)
    if (text.compare(at, token.content.size(), token.content) == 0) return &token;
  return nullptr;
}

void AddedTokenMatcher::split(std::string_view text, bool skip_special,
                              std::vector<Part>& parts) const {
  size_t done = 0;  // what lies before belongs to a part
  for (size_t at = 0; at < text.size();) {
    const AddedToken* token = match(text, at);
    if (token == nullptr) {
      ++at;
      continue;
    }
    size_t begin = at, end = at + token->content.size();
    at = end;
    if (token->special && skip_special) continue;
    if (token->single_word) {
      if (begin > 0 && is_word_character(char_before(text, begin))) continue;
      if (end < text.size() && is_word_character(decode_utf8(text, end).code_point)) continue;
    }
    if (token->lstrip) {
      while (begin > done && is_space(char_before(text, begin)))
        do
          --begin;
        while ((uint8_t(text[begin]) & 0xC0) == 0x80);
    }
    if (token->rstrip) {
      while (end < text.size()) {
        const DecodedUtf8 next = decode_utf8(text, end);
        if (!is_space(next.code_point)) break;
        end += size_t(next.length);
      }
    }
    if (begin > done) parts.push_back({-1, done, begin});
    parts.push_back({token->id, begin, end});
    done = end;
    at = std::max(at, end);
  }
  if (done < text.size()) parts.push_back({-1, done, text.size()});
}

}  // namespace minim::text
