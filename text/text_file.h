#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace minim::text {

// A UTF-8 text file in memory, checked for its encoding but not yet parsed.
struct TextFile {
  std::string name;             // as given, for messages
  std::string_view bytes = {};  // the whole file, so that offsets are offsets in the file
  size_t begin = 0;             // first byte after a byte order mark
  // Offset of the first ill-formed or NUL byte, or npos. Whoever parses reports it with the line
  // and field it lies in, by fail_bad_byte.
  size_t bad = std::string::npos;
  std::shared_ptr<const void> storage = {};  // of the bytes; copies share it
  bool is_mapped = false;                    // the bytes are pages of the file itself
};

// Reads a file, or standard input for "-". A UTF-16 or UTF-32 byte order mark is an error.
// With `replace_invalid`, ill-formed bytes become U+FFFD and a warning counts them.
TextFile read_text_file(const std::string& path, bool replace_invalid,
                        std::vector<std::string>& warnings);

// The same of a file that need not fit into memory: a regular one is mapped, any other, and one
// whose bytes are replaced, is read.
TextFile map_text_file(const std::string& path, bool replace_invalid,
                       std::vector<std::string>& warnings);

// Bytes of a mapped file that are read before their pages are given back.
constexpr size_t release_window = size_t(4) << 20;

// Gives the pages of a mapped file up to that offset back; they can be read again.
void release_pages(const TextFile& file, size_t end);

// The same checks on bytes already in memory.
TextFile text_file(std::string name, std::string bytes, bool replace_invalid,
                   std::vector<std::string>& warnings);

// Throws the error about file.bad; `field` is 1-based, or 0 where the format has no fields.
[[noreturn]] void fail_bad_byte(const TextFile& file, int64_t line, int64_t field);

// Number of line ends in a text: LF, CRLF or a lone CR.
int64_t count_line_ends(std::string_view text);

// The first 60 characters of a text's first line, for messages.
std::string excerpt(std::string_view text);

}  // namespace minim::text
