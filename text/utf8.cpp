#include "text/utf8.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace minim::text {
namespace {

// What a lead byte asks for: the sequence's length (0: no lead byte) and the range of its second
// byte, which is where overlong forms, surrogates and values above U+10FFFF show.
struct Lead {
  int length;
  uint8_t low, high;
};

Lead lead_of(uint8_t byte) {
  if (byte < 0x80) return {1, 0, 0};
  if (byte < 0xC2) return {0, 0, 0};
  if (byte < 0xE0) return {2, 0x80, 0xBF};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};
  if (byte < 0xF0) return {3, 0x80, 0xBF};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte < 0xF4) return {4, 0x80, 0xBF};
  if (byte == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

// First byte at or after `at` that is not ASCII.
size_t skip_ascii(std::string_view bytes, size_t at) {
  for (; at + 8 <= bytes.size(); at += 8) {
    uint64_t word;
    std::memcpy(&word, bytes.data() + at, 8);
    if (word & 0x8080808080808080u) break;
  }
  while (at < bytes.size() && uint8_t(bytes[at]) < 0x80)
    ++at;
  return at;
}

}  // namespace

DecodedUtf8 decode_utf8(std::string_view bytes, size_t at) {
  const auto byte = [&](size_t i) { return uint8_t(bytes[i]); };
  const Lead lead = lead_of(byte(at));
  if (lead.length == 1) return {byte(at), 1, true};
  if (lead.length == 0) return {0xFFFD, 1, false};
  char32_t code_point = byte(at) & (0x7Fu >> lead.length);
  for (int i = 1; i < lead.length; ++i) {
    const size_t next = at + size_t(i);
    const uint8_t low = i == 1 ? lead.low : 0x80, high = i == 1 ? lead.high : 0xBF;
    if (next >= bytes.size() || byte(next) < low || byte(next) > high) return {0xFFFD, i, false};
    code_point = code_point << 6 | (byte(next) & 0x3Fu);
  }
  return {code_point, lead.length, true};
}

size_t validate_utf8(std::string_view bytes, size_t from) {
  for (size_t at = from;;) {
    at = skip_ascii(bytes, at);
    if (at >= bytes.size()) return std::string_view::npos;
    const DecodedUtf8 step = decode_utf8(bytes, at);
    if (!step.valid) return at;
    at += size_t(step.length);
  }
}

std::string replace_invalid_utf8(std::string_view bytes) {
  std::string text;
  text.reserve(bytes.size());
  for (size_t at = 0; at < bytes.size();) {
    const size_t bad = std::min(validate_utf8(bytes, at), bytes.size());
    text += bytes.substr(at, bad - at);
    if (bad == bytes.size()) break;
    text += "\xEF\xBF\xBD";
    at = bad + size_t(decode_utf8(bytes, bad).length);
  }
  return text;
}

void append_utf8(std::string& to, char32_t code_point) {
  const auto tail = [&](int shift) { to += char(0x80 | (code_point >> shift & 0x3F)); };
  if (code_point < 0x80) {
    to += char(code_point);
  } else if (code_point < 0x800) {
    to += char(0xC0 | code_point >> 6);
    tail(0);
  } else if (code_point < 0x10000) {
    to += char(0xE0 | code_point >> 12);
    tail(6), tail(0);
  } else {
    to += char(0xF0 | code_point >> 18);
    tail(12), tail(6), tail(0);
  }
}

}  // namespace minim::text
