#include "train/folder_lock.h"

#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <string_view>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fmt/format.h>

#include "core/error.h"

namespace minim::train {

namespace fs = std::filesystem;

namespace {

// Whether the descriptor's file is still the one of that name: the process that had the lock
// removes it.
bool is_at(int descriptor, const std::string& path) {
  struct stat ours {
  }, named{};
  return ::fstat(descriptor, &ours) == 0 && ::stat(path.c_str(), &named) == 0 &&
         ours.st_ino == named.st_ino && ours.st_dev == named.st_dev;
}

std::string holder(int descriptor) {
  char text[32] = {};
  const ssize_t length = ::pread(descriptor, text, sizeof text - 1, 0);
  return length > 0 ? fmt::format(" (process {})", std::string(text, size_t(length))) : "";
}

}  // namespace

FolderLock::FolderLock(const std::string& folder) : path_(folder + "/.minim-lock") {
  std::error_code error;
  for (fs::path path = folder; !path.empty() && !fs::exists(path, error); path = path.parent_path())
    made_.push_back(path.string());
  fs::create_directories(folder, error);
  check(!error, "{}: the folder cannot be made ({})", folder, error.message());
  while (true) {
    descriptor_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    check(descriptor_ >= 0, "{}: cannot be written ({})", path_, std::strerror(errno));
    if (::flock(descriptor_, LOCK_EX | LOCK_NB) != 0) {
      const int reason = errno;
      // File systems without locks are used without.
      if (reason == ENOLCK || reason == EOPNOTSUPP || reason == ENOSYS) break;
      const std::string who = holder(descriptor_);
      ::close(descriptor_);
      check(reason != EWOULDBLOCK,
            "{}: another run{} is writing to this folder; wait for its end or choose another one",
            folder, who);
      fail("{}: cannot be locked ({})", path_, std::strerror(reason));
    }
    if (is_at(descriptor_, path_)) break;
    ::close(descriptor_);
  }
  const std::string pid = fmt::format("{}", ::getpid());
  // For messages alone, so that a full disk does no harm here.
  [[maybe_unused]] const bool cut = ::ftruncate(descriptor_, 0) == 0;
  [[maybe_unused]] const ssize_t written = ::pwrite(descriptor_, pid.data(), pid.size(), 0);
}

FolderLock::~FolderLock() {
  ::unlink(path_.c_str());
  ::close(descriptor_);
  for (const std::string& folder : made_)
    ::rmdir(folder.c_str());
}

void remove_left_overs(const std::string& folder) {
  constexpr std::string_view prefix = ".minim-", suffix = ".tmp";
  std::error_code error;
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(prefix) || !name.ends_with(suffix)) continue;
    pid_t pid = 0;
    const char* const begin = name.data() + prefix.size();
    if (std::from_chars(begin, name.data() + name.size(), pid).ec != std::errc()) continue;
    if (pid == ::getpid() || (pid > 0 && ::kill(pid, 0) != 0 && errno == ESRCH))
      found.push_back(entry.path());
  }
  for (const fs::path& path : found)
    fs::remove_all(path, error);
}

}  // namespace minim::train
