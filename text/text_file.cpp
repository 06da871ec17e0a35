#include "text/text_file.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <sys/mman.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include "core/error.h"
#include "core/file.h"
#include "text/utf8.h"

namespace minim::text {
namespace {

void refuse_other_encodings(const TextFile& file) {
  const std::string_view bytes = file.bytes;
  const auto begins = [&](std::string_view mark) { return bytes.substr(0, mark.size()) == mark; };
  using namespace std::string_view_literals;
  // UTF-32's little-endian mark begins with UTF-16's, so it is looked for first.
  const char* found = begins("\xFF\xFE\0\0"sv) || begins("\0\0\xFE\xFF"sv) ? "UTF-32"
                      : begins("\xFF\xFE"sv) || begins("\xFE\xFF"sv)       ? "UTF-16"
                                                                           : nullptr;
  check(!found, "{}: byte 0 begins a {} byte order mark; convert the file to UTF-8", file.name,
        found ? found : "");
}

std::string read_all(std::FILE* stream, const std::string& name) {
  std::string bytes;
  std::error_code unknown;
  const auto size = std::filesystem::file_size(name, unknown);
  if (!unknown) bytes.reserve(size_t(size) + 1);
  for (size_t got = 1; got > 0;) {
    const size_t old = bytes.size();
    const size_t step = std::max<size_t>(bytes.capacity() - old, 1 << 16);
    bytes.resize(old + step);
    got = std::fread(bytes.data() + old, 1, step, stream);
    bytes.resize(old + got);
  }
  check(!std::ferror(stream), "{}: cannot be read", name);
  return bytes;
}

// First ill-formed or NUL byte. Pages of a mapped file are given back on the way.
size_t find_bad_byte(const TextFile& file) {
  for (size_t from = 0; from < file.bytes.size();) {
    size_t end = std::min(from + release_window, file.bytes.size());
    // A character of at most four bytes is not cut in two.
    for (int i = 0; i < 3 && end < file.bytes.size() && (file.bytes[end] & 0xC0) == 0x80; ++i)
      --end;
    const std::string_view part = file.bytes.substr(from, end - from);
    const size_t bad = std::min(validate_utf8(part), part.find('\0'));
    if (bad != std::string_view::npos) return from + bad;
    release_pages(file, end);
    from = end;
  }
  return std::string::npos;
}

void begin_text(TextFile& file) {
  refuse_other_encodings(file);
  if (file.bytes.starts_with("\xEF\xBB\xBF")) file.begin = 3;
  file.bad = find_bad_byte(file);
}

}  // namespace

TextFile read_text_file(const std::string& path, bool replace_invalid,
                        std::vector<std::string>& warnings) {
  if (path == "-") {
    return text_file("standard input", read_all(stdin, path), replace_invalid, warnings);
  }
  std::error_code none;  // a name that is none at all is found out below
  check(!std::filesystem::is_directory(path, none), "{}: is a folder, must be a file", path);
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> stream(std::fopen(path.c_str(), "rb"),
                                                               std::fclose);
  check(stream != nullptr, "{}: {}", path,
        std::filesystem::exists(path, none) ? "cannot be opened" : "no such file");
  return text_file(path, read_all(stream.get(), path), replace_invalid, warnings);
}

TextFile map_text_file(const std::string& path, bool replace_invalid,
                       std::vector<std::string>& warnings) {
  // A file that another program cuts short while it is mapped would end this one, so that what is
  // small is read at once.
  constexpr size_t small = size_t(16) << 20;
  std::error_code none;
  if (replace_invalid || !std::filesystem::is_regular_file(path, none) ||
      std::filesystem::file_size(path, none) < small)
    return read_text_file(path, replace_invalid, warnings);
  const auto mapped = std::make_shared<const MappedFile>(path);
  TextFile file{.name = path, .bytes = mapped->text(), .storage = mapped, .is_mapped = true};
  begin_text(file);
  return file;
}

void release_pages(const TextFile& file, size_t end) {
  const auto page = size_t(::sysconf(_SC_PAGESIZE));
  if (!file.is_mapped || end < page) return;
  // What cannot be given back stays; nothing depends on it.
  (void)::madvise(const_cast<char*>(file.bytes.data()), end / page * page, MADV_DONTNEED);
}

TextFile text_file(std::string name, std::string bytes, bool replace_invalid,
                   std::vector<std::string>& warnings) {
  TextFile file{.name = std::move(name), .bytes = bytes};
  refuse_other_encodings(file);
  if (replace_invalid && validate_utf8(bytes) != std::string::npos) {
    int64_t count = 0;
    for (size_t at = 0; (at = validate_utf8(bytes, at)) != std::string::npos; ++count) {
      at += size_t(decode_utf8(bytes, at).length);
    }
    warnings.push_back(fmt::format("{}: {} ill-formed byte sequence{} replaced by U+FFFD",
                                   file.name, count, count == 1 ? "" : "s"));
    bytes = replace_invalid_utf8(bytes);
  }
  const auto storage = std::make_shared<const std::string>(std::move(bytes));
  file.bytes = *storage;
  file.storage = storage;
  begin_text(file);
  return file;
}

void fail_bad_byte(const TextFile& file, int64_t line, int64_t field) {
  const std::string place =
      fmt::format("{}: line {}{}", file.name, line, field ? fmt::format(", field {}", field) : "");
  const auto byte = uint8_t(file.bytes[file.bad]);
  if (byte == 0) {
    fail("{}: NUL byte (byte {} of the file); UTF-16 must be converted to UTF-8", place, file.bad);
  }
  fail(
      "{}: byte {} (0x{:02X}) is not valid UTF-8; convert the file (from Latin-1?) or replace such "
      "bytes with --replace-invalid-utf8",
      place, file.bad, byte);
}

int64_t count_line_ends(std::string_view text) {
  int64_t count = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    count += text[i] == '\n' ? i == 0 || text[i - 1] != '\r' : text[i] == '\r';
  }
  return count;
}

std::string excerpt(std::string_view text) {
  size_t at = 0;
  const auto ended = [&] { return at == text.size() || text[at] == '\r' || text[at] == '\n'; };
  for (int n = 0; n < 60 && !ended(); ++n)
    at += size_t(decode_utf8(text, at).length);
  return replace_invalid_utf8(text.substr(0, at)) + (ended() ? "" : "...");
}

}  // namespace minim::text
