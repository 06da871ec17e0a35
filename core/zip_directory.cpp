#include "core/zip_directory.h"

#include <algorithm>
#include <cstring>

#include "core/error.h"
#include "core/printable.h"

// Structures and field offsets: PKWARE APPNOTE 6.3.10, sections 4.3.7 to 4.3.16 and 4.5.3.
namespace minim {
namespace {

// Reads little-endian fields of an archive and refuses to leave it.
class Fields {
 public:
  Fields(const std::string& path, std::string_view archive) : path_(path), archive_(archive) {}

  std::string_view text(uint64_t at, uint64_t size) const {
    check(at <= archive_.size() && size <= archive_.size() - at,
          "{}: invalid ZIP archive: {} bytes at {} reach beyond its end", path_, size, at);
    return archive_.substr(at, size);
  }
  template <class T>
  uint64_t number(uint64_t at) const {
    T value;
    std::memcpy(&value, text(at, sizeof value).data(), sizeof value);
    return value;
  }
  uint64_t u16(uint64_t at) const { return number<uint16_t>(at); }
  uint64_t u32(uint64_t at) const { return number<uint32_t>(at); }
  uint64_t u64(uint64_t at) const { return number<uint64_t>(at); }
  bool starts(uint64_t at, std::string_view signature) const {
    return at <= archive_.size() && archive_.substr(at).starts_with(signature);
  }

 private:
  const std::string& path_;
  std::string_view archive_;
};

struct Directory {
  uint64_t entries = 0;
  uint64_t begin = 0;
  uint64_t end = 0;
};

Directory find_directory(const std::string& path, std::string_view archive) {
  const Fields fields(path, archive);
  // The end record is 22 bytes and a comment of at most 65535.
  constexpr size_t record = 22;
  constexpr size_t longest_comment = 65535;
  const size_t first =
      archive.size() > record + longest_comment ? archive.size() - record - longest_comment : 0;
  const size_t at = archive.rfind("PK\5\6");
  check(at != archive.npos && at >= first,
        "{}: invalid ZIP archive: its directory is missing, the file may be cut off", path);
  Directory directory{fields.u16(at + 10), fields.u32(at + 16), 0};
  uint64_t size = fields.u32(at + 12);
  const bool in_64_bits =
      directory.entries == 0xffff || directory.begin == 0xffffffff || size == 0xffffffff;
  if (in_64_bits) {
    check(at >= 20 && fields.starts(at - 20, "PK\6\7"),
          "{}: invalid ZIP archive: the end of its directory is missing", path);
    const uint64_t wide = fields.u64(at - 20 + 8);
    check(fields.starts(wide, "PK\6\6"), "{}: invalid ZIP archive: its directory is missing", path);
    directory.entries = fields.u64(wide + 32);
    size = fields.u64(wide + 40);
    directory.begin = fields.u64(wide + 48);
  }
  fields.text(directory.begin, size);
  directory.end = directory.begin + size;
  return directory;
}

// The wide value of a directory entry's field that holds only ones, from its extra data.
uint64_t widened(const Fields& fields, uint64_t narrow, uint64_t& extra, uint64_t extra_end) {
  if (narrow != 0xffffffff || extra + 8 > extra_end) return narrow;
  extra += 8;
  return fields.u64(extra - 8);
}

}  // namespace

std::map<std::string_view, ZipEntry> read_zip_directory(const std::string& path,
                                                        std::string_view archive) {
  const Fields fields(path, archive);
  const Directory directory = find_directory(path, archive);
  std::map<std::string_view, ZipEntry> entries;
  uint64_t at = directory.begin;
  for (uint64_t i = 0; i < directory.entries; ++i) {
    check(fields.starts(at, "PK\1\2"), "{}: invalid ZIP archive: entry {} is missing", path, i);
    const uint64_t name_size = fields.u16(at + 28);
    const uint64_t extra_size = fields.u16(at + 30);
    const std::string_view name = fields.text(at + 46, name_size);
    uint64_t extra = at + 46 + name_size;
    const uint64_t extra_end = extra + extra_size;
    fields.text(extra, extra_size);
    const uint64_t next = extra_end + fields.u16(at + 32);
    check(next <= directory.end, "{}: invalid ZIP archive: entry {} leaves its directory", path,
          printable(name));
    check(fields.u16(at + 10) == 0 && (fields.u16(at + 8) & 1) == 0,
          "{}: ZIP entry {} is compressed or encrypted, only stored ones are read", path,
          printable(name));

    while (extra + 4 <= extra_end && fields.u16(extra) != 1)
      extra += 4 + fields.u16(extra + 2);
    extra += 4;
    const uint64_t size = widened(fields, fields.u32(at + 24), extra, extra_end);
    const uint64_t stored_size = widened(fields, fields.u32(at + 20), extra, extra_end);
    const uint64_t local = widened(fields, fields.u32(at + 42), extra, extra_end);
    check(size == stored_size, "{}: ZIP entry {} has two sizes, {} and {}", path, printable(name),
          size, stored_size);

    // The local header may be longer than the directory says: torch pads it to align the data.
    check(fields.starts(local, "PK\3\4") && fields.u16(local + 26) == name_size &&
              fields.text(local + 30, name_size) == name,
          "{}: ZIP entry {} is not where the directory says", path, printable(name));
    const uint64_t begin = local + 30 + name_size + fields.u16(local + 28);
    check(begin <= directory.begin && size <= directory.begin - begin,
          "{}: ZIP entry {} of {} bytes reaches beyond the end of the archive", path,
          printable(name), size);
    check(entries.emplace(name, ZipEntry{begin, size}).second, "{}: ZIP entry {} occurs twice",
          path, printable(name));
    at = next;
  }
  return entries;
}

}  // namespace minim
