#include "core/file.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "core/error.h"

namespace minim {
namespace {

// A file descriptor that is closed at the end of its scope.
struct Descriptor {
  int value;
  ~Descriptor() {
    if (value >= 0) ::close(value);
  }
};

// Opens a regular file and finds its size.
int open_regular(const std::string& path, struct stat& status) {
  check(path.find('\0') == std::string::npos,
        "{}: cannot be opened: the name holds a NUL character", path.c_str());
  // O_NONBLOCK: a named pipe must be refused, not waited for.
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  check(descriptor >= 0, "{}: cannot be opened: {}", path, std::strerror(errno));
  Descriptor guard{descriptor};
  check(::fstat(descriptor, &status) == 0, "{}: cannot be read: {}", path, std::strerror(errno));
  check(!S_ISDIR(status.st_mode), "{}: cannot be read: it is a folder", path);
  check(S_ISREG(status.st_mode), "{}: cannot be read: it is not a regular file", path);
  return std::exchange(guard.value, -1);
}

std::string folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

}  // namespace

MappedFile::MappedFile(std::string path, Access access) : path_(std::move(path)) {
  struct stat status = {};
  const Descriptor file{open_regular(path_, status)};
  size_ = size_t(status.st_size);
  if (size_ == 0) return;
  const bool writable = access == Access::copy_on_write;
  // MAP_NORESERVE: a file larger than the memory can be mapped as long as few pages are written.
  void* address = ::mmap(nullptr, size_, writable ? PROT_READ | PROT_WRITE : PROT_READ,
                         MAP_PRIVATE | MAP_NORESERVE, file.value, 0);
  check(address != MAP_FAILED, "{}: {} bytes cannot be mapped: {}", path_, size_,
        std::strerror(errno));
  data_ = static_cast<std::byte*>(address);
  // Pages beyond the end of a file that shrank meanwhile would kill the process when touched.
  struct stat after = {};
  if (::fstat(file.value, &after) != 0 || after.st_size != status.st_size) {
    ::munmap(data_, size_);
    fail("{}: changed its size from {} to {} bytes while it was opened", path_, size_,
         int64_t(after.st_size));
  }
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(data_, size_);
}

AtomicFile::AtomicFile(std::string path) : path_(std::move(path)), folder_(folder_of(path_)) {
  check(!path_.empty() && path_.back() != '/', "{}: cannot be written: it names no file", path_);
  check(path_.find('\0') == std::string::npos,
        "{}: cannot be written: the name holds a NUL character", path_.c_str());
  struct stat old = {};
  const bool replaces = ::stat(path_.c_str(), &old) == 0;
  // Renaming over a device or a pipe would destroy it.
  check(!replaces || S_ISREG(old.st_mode), "{}: cannot be written: it is not a regular file",
        path_);
  static std::atomic<uint64_t> counter = 0;
  do {
    temporary_ = fmt::format("{}/.minim-{}-{}.tmp", folder_, ::getpid(), ++counter);
    descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  } while (descriptor_ < 0 && errno == EEXIST);
  if (descriptor_ < 0) {
    temporary_.clear();
    fail("{}: cannot be written: no file can be made in {}: {}", path_, folder_,
         std::strerror(errno));
  }
  if (replaces) (void)::fchmod(descriptor_, old.st_mode & 07777);  // keeps what it may
}

AtomicFile::~AtomicFile() {
  discard();
}

void AtomicFile::discard() noexcept {
  if (descriptor_ >= 0) ::close(std::exchange(descriptor_, -1));
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
  temporary_.clear();
}

void AtomicFile::give_up(std::string_view doing) {
  const int reason = errno;
  discard();
  fail("{}: {} failed after {} bytes: {}; the file is as it was before", path_, doing, written_,
       std::strerror(reason));
}

void AtomicFile::write(const void* data, size_t bytes) {
  check(descriptor_ >= 0, "{}: written to after its end", path_);
  constexpr size_t most = size_t(1) << 30;  // one call of the system writes less than 2 GiB
  const auto* from = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t done = ::write(descriptor_, from, std::min(bytes, most));
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) give_up(fmt::format("writing {} more bytes", bytes));
    from += done;
    bytes -= size_t(done);
    written_ += uint64_t(done);
  }
}

void AtomicFile::commit() {
  check(descriptor_ >= 0, "{}: written to after its end", path_);
  if (::fsync(descriptor_) != 0) give_up("flushing to the disk");
  if (::close(std::exchange(descriptor_, -1)) != 0) give_up("closing");
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) give_up("renaming");
  temporary_.clear();
  // The new name is on the disk only when its folder is; some file systems cannot flush folders.
  const Descriptor folder{::open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
  const bool flushed = folder.value < 0 || ::fsync(folder.value) == 0 || errno == EINVAL;
  check(flushed, "{}: is written, but flushing its folder failed: {}", path_, std::strerror(errno));
}

void write_whole_file(const std::string& path, std::string_view contents) {
  AtomicFile file(path);
  file.write(contents);
  file.commit();
}

std::string read_whole_file(const std::string& path, size_t most) {
  struct stat status = {};
  const Descriptor file{open_regular(path, status)};
  const auto size = size_t(status.st_size);
  check(size <= most, "{}: has {} bytes, at most {} are read", path, size, most);
  std::string contents(size, '\0');
  size_t at = 0;
  while (at < size) {
    const ssize_t done = ::pread(file.value, contents.data() + at, size - at, off_t(at));
    if (done < 0 && errno == EINTR) continue;
    check(done >= 0, "{}: cannot be read: {}", path, std::strerror(errno));
    check(done > 0, "{}: shrank from {} to {} bytes while it was read", path, size, at);
    at += size_t(done);
  }
  return contents;
}

}  // namespace minim
