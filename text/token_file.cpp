#include "text/token_file.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "core/error.h"

namespace minim::text {
namespace {

constexpr size_t buffer_size = size_t(1) << 20;

struct Footer {
  std::array<char, 8> magic = {'m', 'i', 'n', 'i', 'm', 't', 'o', 'k'};
  uint32_t version = token_file_version;
  uint32_t byte_order = 0x01020304;
  ContentHash key;
  uint64_t units = 0, rows = 0, notes = 0;
  ContentHash contents;
};
static_assert(sizeof(Footer) == 72);

// Reads all of it or throws.
void read_at(int descriptor, const std::string& path, void* to, size_t bytes, uint64_t at) {
  auto* into = static_cast<char*>(to);
  while (bytes > 0) {
    const ssize_t got = ::pread(descriptor, into, bytes, off_t(at));
    if (got < 0 && errno == EINTR) continue;
    check(got >= 0, "{}: cannot be read: {}", path, std::strerror(errno));
    check(got > 0, "{}: ends at byte {}; it was cut since it was opened", path, at);
    into += got;
    bytes -= size_t(got);
    at += uint64_t(got);
  }
}

ContentHash hash_of(int descriptor, const std::string& path, uint64_t bytes) {
  ContentHasher hasher;
  std::vector<char> buffer(buffer_size);
  for (uint64_t at = 0; at < bytes;) {
    const auto part = size_t(std::min<uint64_t>(buffer.size(), bytes - at));
    read_at(descriptor, path, buffer.data(), part, at);
    hasher.add(buffer.data(), part);
    at += part;
  }
  return hasher.finish();
}

}  // namespace

TokenFileWriter::TokenFileWriter(std::string path, ContentHash key)
    : path_(std::move(path)), file_(path_), key_(key) {
  buffer_.reserve(buffer_size);
}

void TokenFileWriter::flush() {
  hasher_.add(buffer_.data(), buffer_.size());
  file_.write(buffer_.data(), buffer_.size());
  buffer_.clear();
}

void TokenFileWriter::write(const void* data, size_t bytes) {
  const auto* from = static_cast<const char*>(data);
  buffer_.insert(buffer_.end(), from, from + bytes);
  if (buffer_.size() >= buffer_size) flush();
}

void TokenFileWriter::add(const TokenSequence& sequence, uint32_t label, bool was_cut) {
  const auto& [ids, types] = sequence;
  check(types.empty() || types.size() == ids.size(), "{}: {} token types for {} tokens", path_,
        types.size(), ids.size());
  write(ids.data(), 4 * ids.size());
  write(types.data(), 4 * types.size());
  units_ += ids.size() + types.size();
  index_.push_back(units_ << 2 | uint64_t(was_cut) << 1 | uint64_t(!types.empty()));
  labels_.push_back(label);
}

void TokenFileWriter::commit(std::string_view notes) {
  write(index_.data(), 8 * index_.size());
  write(labels_.data(), 4 * labels_.size());
  write(notes.data(), notes.size());
  flush();
  const Footer footer{.key = key_,
                      .units = units_,
                      .rows = index_.size(),
                      .notes = notes.size(),
                      .contents = hasher_.finish()};
  file_.write(&footer, sizeof(footer));
  file_.commit();
}

TokenFile::TokenFile(const std::string& path, ContentHash key) : path_(path) {
  descriptor_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  check(descriptor_ >= 0, "{}: cannot be opened: {}", path, std::strerror(errno));
  try {
    struct stat status = {};
    check(::fstat(descriptor_, &status) == 0 && S_ISREG(status.st_mode), "{}: is no regular file",
          path);
    const auto size = uint64_t(status.st_size);
    Footer footer;
    const Footer expected;
    check(size >= sizeof(footer), "{}: {} bytes are too few for a token file", path, size);
    const uint64_t contents = size - sizeof(footer);
    read_at(descriptor_, path, &footer, sizeof(footer), contents);
    check(footer.magic == expected.magic && footer.byte_order == expected.byte_order,
          "{}: does not end as a token file of this machine does; it is cut or another file", path);
    check(footer.version == expected.version, "{}: has version {} of the format, must be {}", path,
          footer.version, expected.version);
    check(footer.key == key, "{}: was made from other data or with other options", path);
    // Each number is held against the size before it is multiplied.
    const bool fits = footer.units <= size && footer.rows <= size && footer.notes <= size &&
                      4 * footer.units + 12 * footer.rows + footer.notes == contents;
    check(fits, "{}: {} bytes for {} examples with {} numbers; it is cut or damaged", path, size,
          footer.rows, footer.units);
    check(hash_of(descriptor_, path, contents) == footer.contents,
          "{}: its contents are not those that were written; it is damaged", path);
    uint64_t at = 4 * footer.units;
    const auto take = [&](void* to, uint64_t bytes) {
      read_at(descriptor_, path, to, size_t(bytes), at);
      at += bytes;
    };
    index_.resize(size_t(footer.rows));
    labels_.resize(size_t(footer.rows));
    notes_.resize(size_t(footer.notes));
    take(index_.data(), 8 * footer.rows);
    take(labels_.data(), 4 * footer.rows);
    take(notes_.data(), footer.notes);
  } catch (...) {
    ::close(descriptor_);
    throw;
  }
}

TokenFile::~TokenFile() {
  ::close(descriptor_);
}

int64_t TokenFile::length(int64_t row) const {
  const uint64_t entry = index_[size_t(row)];
  const uint64_t units = (entry >> 2) - begin(row);
  return int64_t((entry & 1) != 0 ? units / 2 : units);
}

void TokenFile::read(int64_t row, TokenSequence& sequence) const {
  const auto tokens = size_t(length(row));
  const uint64_t at = 4 * begin(row);
  const bool has_types = (index_[size_t(row)] & 1) != 0;
  sequence.input_ids.resize(tokens);
  sequence.token_type_ids.resize(has_types ? tokens : 0);
  read_at(descriptor_, path_, sequence.input_ids.data(), 4 * tokens, at);
  if (has_types)
    read_at(descriptor_, path_, sequence.token_type_ids.data(), 4 * tokens, at + 4 * tokens);
}

}  // namespace minim::text
