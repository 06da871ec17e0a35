#include <filesystem>
#include <sys/wait.h>
#include <unistd.h>

#include <doctest/doctest.h>

#include "core/file.h"
#include "tests/core/temporary_folder.h"
#include "train/folder_lock.h"

// One run to a folder.
using namespace minim;
using namespace minim::test;
using train::FolderLock;
namespace fs = std::filesystem;

namespace {

// The number of a process that is no more.
pid_t ended_process() {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  REQUIRE(::waitpid(child, nullptr, 0) == child);
  return child;
}

}  // namespace

TEST_CASE("a folder is locked while the lock lives, and leaves nothing behind") {
  const TemporaryFolder folder;
  {
    const FolderLock lock(folder.path());
    CHECK(error_of([&] { FolderLock{folder.path()}; }) ==
          folder.path() + ": another run (process " + std::to_string(::getpid()) +
              ") is writing to this folder; wait for its end or choose another one");
  }
  CHECK(folder.files().empty());
  { const FolderLock again(folder.path()); }
}

TEST_CASE("folders made for a lock go with it unless something is in them") {
  const TemporaryFolder folder;
  { const FolderLock lock(folder / "a/b"); }
  CHECK(folder.files().empty());
  {
    const FolderLock lock(folder / "a/b");
    write_whole_file(folder / "a/b/file", "");
  }
  CHECK(fs::exists(folder / "a/b/file"));
  write_whole_file(folder / "file", "");
  CHECK(error_of([&] {
          FolderLock{folder / "file/run"};
        }).starts_with(folder / "file/run: the folder cannot be made ("));
}

TEST_CASE("a process that has ended holds no lock, however it ended") {
  const TemporaryFolder folder;
  const pid_t child = ::fork();
  if (child == 0) {
    static const FolderLock lock(folder.path());
    ::_exit(0);  // without destructors
  }
  REQUIRE(::waitpid(child, nullptr, 0) == child);
  CHECK(folder.files() == std::vector<std::string>{".minim-lock"});
  { const FolderLock lock(folder.path()); }
  CHECK(folder.files().empty());
}

TEST_CASE("what ended processes left under temporary names is removed, and nothing else") {
  const TemporaryFolder folder;
  const std::string ended = std::to_string(ended_process());
  const std::string alive = std::to_string(::getppid());
  fs::create_directory(folder / (".minim-" + ended + ".tmp"));
  write_whole_file(folder / (".minim-" + ended + ".tmp/file"), "");
  fs::create_directory(folder / (".minim-" + ended + "-old.tmp"));
  write_whole_file(folder / (".minim-" + ended + "-3.tmp"), "");
  const std::vector<std::string> stay = {".minim-" + alive + ".tmp", ".minim-x.tmp",
                                         "checkpoint-1"};
  for (const std::string& name : stay)
    fs::create_directory(folder / name);
  train::remove_left_overs(folder.path());
  CHECK(folder.files() == stay);
}
