#pragma once

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <unistd.h>
#include <vector>

#include "core/error.h"
#include "core/file.h"

namespace minim::test {

// A folder of its own that is removed at the end of the scope; in memory where the system has such
// a place, since flushing thousands of files to a disk takes long.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    const bool in_memory = ::access("/dev/shm", W_OK) == 0;
    path_ = in_memory ? "/dev/shm" : std::filesystem::temp_directory_path().string();
    path_ += "/minim-test-XXXXXX";
    if (::mkdtemp(path_.data()) == nullptr) throw Error("no temporary folder can be made");
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  // Names of the files in it, sorted.
  std::vector<std::string> files() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(path_)) {
      names.push_back(entry.path().filename().string());
    }
    std::sort(names.begin(), names.end());
    return names;
  }

 private:
  std::string path_;
};

// The text of the Error that a call throws; "" if it returns.
template <class Call>
std::string error_of(Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// Bytes written as two hexadecimal digits each.
inline std::string from_hex(const std::string& hex) {
  std::string bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes += char(std::stoi(hex.substr(i, 2), nullptr, 16));
  }
  return bytes;
}

}  // namespace minim::test
