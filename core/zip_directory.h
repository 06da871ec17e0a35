#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace minim {

// Where the bytes of one file lie in a ZIP archive.
struct ZipEntry {
  uint64_t begin = 0;
  uint64_t size = 0;
};

// Lists a ZIP archive (with or without the 64-bit extension) whose files are stored, not
// compressed: name to place. Names are data, never paths. Throws Error naming `path` for anything
// else; every place returned lies within `archive`.
std::map<std::string_view, ZipEntry> read_zip_directory(const std::string& path,
                                                        std::string_view archive);

}  // namespace minim
