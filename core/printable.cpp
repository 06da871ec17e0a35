#include "core/printable.h"

#include <algorithm>
#include <cstdint>

#include <fmt/core.h>
#include <utf8proc.h>

namespace minim {
namespace {

// Bytes of the well-formed character at the start of the text, 0 if there is none.
size_t character_length(std::string_view text) {
  utf8proc_int32_t code_point = 0;
  const utf8proc_ssize_t length =
      utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                       utf8proc_ssize_t(std::min<size_t>(text.size(), 4)), &code_point);
  return length > 0 ? size_t(length) : 0;
}

}  // namespace

std::string printable(std::string_view text) {
  constexpr size_t most = 120;
  std::string out = "\"";
  size_t at = 0;
  while (at < text.size() && at < most) {
    const auto byte = uint8_t(text[at]);
    const size_t length = character_length(text.substr(at));
    if (length == 0 || byte < 0x20 || byte == 0x7f) {
      out += fmt::format("\\x{:02x}", byte);
      ++at;
    } else {
      out += text.substr(at, length);
      at += length;
    }
  }
  return out + (at < text.size() ? "\"..." : "\"");
}

size_t first_invalid_utf8(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    if (uint8_t(text[at]) < 0x80) {
      ++at;
      continue;
    }
    const size_t length = character_length(text.substr(at));
    if (length == 0) return at;
    at += length;
  }
  return at;
}

}  // namespace minim
