#include <csignal>
#include <string>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

#include <doctest/doctest.h>

#include "core/error.h"
#include "core/file.h"
#include "tests/core/temporary_folder.h"

using minim::AtomicFile;
using minim::MappedFile;
using minim::read_whole_file;
using minim::write_whole_file;
using minim::test::error_of;
using minim::test::TemporaryFolder;

namespace {

// No file of this process may grow beyond so many bytes, as if the disk were full.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_{};
  void (*handler_)(int);
};

// Gives up root's right to write anywhere.
class WithoutRoot {
 public:
  WithoutRoot() : before_(::geteuid()) {
    if (before_ == 0) (void)!::seteuid(65534);
  }
  ~WithoutRoot() { (void)!::seteuid(before_); }

 private:
  uid_t before_;
};

using Names = std::vector<std::string>;

}  // namespace

TEST_CASE("a mapped file shows the bytes of the file") {
  const TemporaryFolder folder;
  write_whole_file(folder / "a", "hello");
  const MappedFile file(folder / "a");
  CHECK(file.text() == "hello");
  CHECK(file.size() == 5);
  CHECK(file.path() == folder / "a");
}

TEST_CASE("an empty file can be mapped") {
  const TemporaryFolder folder;
  write_whole_file(folder / "empty", "");
  CHECK(MappedFile(folder / "empty").text().empty());
}

TEST_CASE("writes to a copy-on-write mapping never reach the file") {
  const TemporaryFolder folder;
  write_whole_file(folder / "a", "hello");
  const MappedFile file(folder / "a", MappedFile::Access::copy_on_write);
  file.data()[0] = std::byte('j');
  CHECK(file.text() == "jello");
  CHECK(read_whole_file(folder / "a") == "hello");
}

TEST_CASE("a mapping keeps the old bytes when the file is replaced") {
  const TemporaryFolder folder;
  write_whole_file(folder / "a", "old");
  const MappedFile file(folder / "a");
  write_whole_file(folder / "a", "new, longer");
  CHECK(file.text() == "old");
  CHECK(read_whole_file(folder / "a") == "new, longer");
}

TEST_CASE("what cannot be read is named with its reason") {
  const TemporaryFolder folder;
  const std::string missing = folder / "missing";
  CHECK(error_of([&] { MappedFile file(missing); }) ==
        missing + ": cannot be opened: No such file or directory");
  CHECK(error_of([&] { read_whole_file(missing); }) ==
        missing + ": cannot be opened: No such file or directory");
  CHECK(error_of([&] { MappedFile file(folder.path()); }) ==
        folder.path() + ": cannot be read: it is a folder");
  const std::string pipe = folder / "pipe";
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  CHECK(error_of([&] { MappedFile file(pipe); }) ==
        pipe + ": cannot be read: it is not a regular file");
  write_whole_file(folder / "a", "hello");
  CHECK(error_of([&] { read_whole_file(folder / "a", 4); }) ==
        (folder / "a") + ": has 5 bytes, at most 4 are read");
}

TEST_CASE("a written file replaces the old one, keeps its mode and leaves nothing else") {
  const TemporaryFolder folder;
  const std::string path = folder / "a";
  write_whole_file(path, "old");
  REQUIRE(::chmod(path.c_str(), 0640) == 0);
  write_whole_file(path, "new");
  CHECK(read_whole_file(path) == "new");
  struct stat status = {};
  REQUIRE(::stat(path.c_str(), &status) == 0);
  CHECK((status.st_mode & 07777) == 0640);
  CHECK(folder.files() == Names{"a"});
}

TEST_CASE("a file that is not committed leaves no trace") {
  const TemporaryFolder folder;
  write_whole_file(folder / "a", "old");
  {
    AtomicFile file(folder / "a");
    file.write("half of the");
    CHECK(read_whole_file(folder / "a") == "old");
    CHECK(folder.files().size() == 2);
  }
  CHECK(read_whole_file(folder / "a") == "old");
  CHECK(folder.files() == Names{"a"});
}

TEST_CASE("a disk that is full leaves the old file and no temporary one") {
  const TemporaryFolder folder;
  const std::string path = folder / "a";
  write_whole_file(path, "old");
  std::string error;
  {
    const FileSizeLimit limit(1000);
    error = error_of([&] { write_whole_file(path, std::string(5000, 'x')); });
  }
  CHECK(error == path +
                     ": writing 4000 more bytes failed after 1000 bytes: File too large; the "
                     "file is as it was before");
  CHECK(read_whole_file(path) == "old");
  CHECK(folder.files() == Names{"a"});
}

TEST_CASE("a folder that cannot be written to is named") {
  const TemporaryFolder folder;
  REQUIRE(::chmod(folder.path().c_str(), 0555) == 0);
  std::string error;
  {
    const WithoutRoot user;
    error = error_of([&] { write_whole_file(folder / "a", "x"); });
  }
  REQUIRE(::chmod(folder.path().c_str(), 0755) == 0);
  CHECK(error == (folder / "a") + ": cannot be written: no file can be made in " + folder.path() +
                     ": Permission denied");
  const std::string nowhere = folder / "no/such";
  CHECK(error_of([&] { write_whole_file(nowhere + "/a", "x"); }) ==
        nowhere + "/a: cannot be written: no file can be made in " + nowhere +
            ": No such file or directory");
}

TEST_CASE("devices and folders are never replaced") {
  const TemporaryFolder folder;
  CHECK(error_of([&] { write_whole_file("/dev/full", "x"); }) ==
        "/dev/full: cannot be written: it is not a regular file");
  CHECK(error_of([&] { write_whole_file(folder.path(), "x"); }) ==
        folder.path() + ": cannot be written: it is not a regular file");
  CHECK(error_of([&] { write_whole_file(folder / "", "x"); }) ==
        (folder / "") + ": cannot be written: it names no file");
}
