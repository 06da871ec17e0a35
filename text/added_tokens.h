#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace minim::text {

// A token that is found in the text itself, before words are (an entry of `added_tokens`).
struct AddedToken {
  std::string content;
  int32_t id = 0;
  bool single_word = false;  // only between characters that are not part of a word
  bool lstrip = false;       // takes white space before it along
  bool rstrip = false;       // takes white space behind it along
  bool normalized = false;   // looked for in the normalised text, else in the text as it is
  bool special = true;       // decode() can leave it out

  bool operator==(const AddedToken&) const = default;
};

// Finds added tokens, leftmost first, the longest where several begin at one place.
class AddedTokenMatcher {
 public:
  // A part of the text: an added token, or (id -1) what lies between two of them.
  struct Part {
    int32_t id;
    size_t begin, end;  // bytes
  };

  AddedTokenMatcher() = default;
  // tokens[i].content is what is looked for; empty ones are never found.
  explicit AddedTokenMatcher(std::vector<AddedToken> tokens);

  bool empty() const { return tokens_.empty(); }
  // Appends the parts of a valid UTF-8 text, in order and without empty ones. With `skip_special`
  // special tokens are ordinary text.
  void split(std::string_view text, bool skip_special, std::vector<Part>& parts) const;
  // Whether a token may begin somewhere in the text: false is certain, true is not.
  bool may_contain(std::string_view text) const;

 private:
  const AddedToken* match(std::string_view text, size_t at) const;

  std::vector<AddedToken> tokens_;  // longest first
  std::array<bool, 256> first_byte_{};
  int only_first_byte_ = -1;  // when all tokens begin with the same byte
};

}  // namespace minim::text
