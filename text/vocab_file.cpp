#include "text/vocab_file.h"

#include <algorithm>
#include <unordered_map>

#include <fmt/core.h>

#include "core/error.h"
#include "text/unicode.h"
#include "text/utf8.h"

namespace minim::text {
namespace {

// Without the white space at the end.
std::string_view trim_end(std::string_view line) {
  while (!line.empty()) {
    size_t at = line.size() - 1;
    while (at > 0 && (uint8_t(line[at]) & 0xC0) == 0x80)
      --at;
    if (!(char_class(decode_utf8(line, at).code_point) & space_class)) break;
    line = line.substr(0, at);
  }
  return line;
}

}  // namespace

std::vector<std::string> parse_vocab(std::string_view contents, const std::string& path,
                                     const std::vector<std::string>& specials,
                                     std::vector<std::string>& notes) {
  if (const size_t bad = validate_utf8(contents); bad != std::string_view::npos)
    fail("{}:{}: not valid UTF-8 (byte 0x{:02X}); save the file as UTF-8", path,
         std::count(contents.begin(), contents.begin() + std::ptrdiff_t(bad), '\n') + 1,
         unsigned(uint8_t(contents[bad])));
  if (contents.starts_with("\xEF\xBB\xBF")) {
    contents.remove_prefix(3);
    notes.push_back(fmt::format("{}: a byte order mark was dropped", path));
  }
  std::vector<std::string> pieces;
  while (!contents.empty()) {
    const size_t end = std::min(contents.find('\n'), contents.size());
    pieces.emplace_back(trim_end(contents.substr(0, end)));
    contents.remove_prefix(std::min(end + 1, contents.size()));
  }
  size_t blank = 0;
  for (; !pieces.empty() && pieces.back().empty(); pieces.pop_back())
    ++blank;
  check(!pieces.empty(), "{}: the file is empty; it must have one piece a line", path);
  if (blank > 0)
    notes.push_back(
        fmt::format("{}: {} blank line{} at the end ignored, the vocabulary has {} pieces", path,
                    blank, blank == 1 ? "" : "s", pieces.size()));

  std::unordered_map<std::string_view, size_t> lines;
  lines.reserve(pieces.size());
  std::vector<size_t> replaced;
  for (size_t i = 0; i < pieces.size(); ++i) {
    if (pieces[i].empty()) {
      notes.push_back(fmt::format(
          "{}:{}: the blank line keeps id {}, so that later ids do not shift", path, i + 1, i));
      continue;
    }
    const auto [found, is_new] = lines.try_emplace(pieces[i], i);
    if (is_new) continue;
    const size_t before = found->second;
    check(std::find(specials.begin(), specials.end(), pieces[i]) == specials.end(),
          "{}:{}: special token {} already defined on line {}", path, i + 1, pieces[i], before + 1);
    notes.push_back(fmt::format("{}:{}: \"{}\" is already on line {}; the last line counts (id {})",
                                path, i + 1, pieces[i], before + 1, i));
    replaced.push_back(before);
    found->second = i;
  }
  for (const size_t line : replaced)
    pieces[line].clear();
  return pieces;
}

std::string format_vocab(const std::vector<std::string>& pieces) {
  std::string text;
  for (const std::string& piece : pieces)
    text.append(piece).push_back('\n');
  return text;
}

bool has_cased_pieces(const std::vector<std::string>& pieces) {
  return std::any_of(pieces.begin(), pieces.end(), [](const std::string& piece) {
    const bool bracketed = piece.starts_with('[') && piece.ends_with(']');
    return !bracketed &&
           std::any_of(piece.begin(), piece.end(), [](char c) { return c >= 'A' && c <= 'Z'; });
  });
}

}  // namespace minim::text
