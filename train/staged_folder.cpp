#include "train/staged_folder.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <system_error>
#include <unistd.h>

#include <fmt/format.h>

#include "core/error.h"

namespace minim::train {

namespace {

namespace fs = std::filesystem;

void rename_to(const fs::path& from, const fs::path& to) {
  std::error_code error;
  fs::rename(from, to, error);
  check(!error, "{}: cannot be written ({})", to.string(), error.message());
}

// A name is on the disk only when its folder is; some file systems cannot flush folders.
void flush(const std::string& folder) {
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return;
  const bool ok = ::fsync(descriptor) == 0 || errno == EINVAL;
  const int reason = errno;
  ::close(descriptor);
  check(ok, "{}: flushing the folder to the disk failed ({})", folder, std::strerror(reason));
}

}  // namespace

StagedFolder::StagedFolder(const std::string& outer)
    : outer_(outer), path_(fmt::format("{}/.minim-{}.tmp", outer, ::getpid())) {
  std::error_code error;
  // A process of the same number may have been killed here.
  if (fs::is_directory(path_, error)) fs::remove_all(path_, error);
  fs::create_directories(path_, error);
  check(!error, "{}: the folder cannot be made ({})", path_, error.message());
}

StagedFolder::~StagedFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

void StagedFolder::merge(const std::vector<std::string>& obsolete) const {
  std::vector<std::string> gone = {"config.json"};
  gone.insert(gone.end(), obsolete.begin(), obsolete.end());
  for (const std::string& old : gone) {
    std::error_code error;
    fs::remove(fs::path(outer_) / old, error);
    check(!error, "{}/{}: cannot be replaced ({})", outer_, old, error.message());
  }
  for (const auto& file : fs::directory_iterator(path_))
    if (const fs::path name = file.path().filename(); name != "config.json")
      rename_to(file.path(), outer_ / name);
  rename_to(fs::path(path_) / "config.json", fs::path(outer_) / "config.json");
  flush(outer_);
}

void StagedFolder::become(const std::string& name) const {
  flush(path_);
  const std::string place = outer_ + "/" + name;
  if (fs::exists(place)) remove_folder(place);
  rename_to(path_, place);
  flush(outer_);
}

void remove_folder(const std::string& path) {
  const std::string aside =
      (fs::path(path).parent_path() / fmt::format(".minim-{}-old.tmp", ::getpid())).string();
  std::error_code error;
  fs::remove_all(aside, error);
  fs::rename(path, aside, error);
  check(!error, "{}: the folder cannot be removed ({})", path, error.message());
  fs::remove_all(aside, error);
  check(!error, "{}: the folder cannot be removed ({})", aside, error.message());
}

}  // namespace minim::train
