#pragma once

#include <string>
#include <vector>

namespace minim::train {

// Keeps a folder to one process: a lock on FOLDER/.minim-lock, which the system lifts when the
// process ends, however it does.
class FolderLock {
 public:
  // Makes the folder if need be; throws, naming the process, where another has the lock.
  explicit FolderLock(const std::string& folder);
  // Removes the lock's file, and folders that were made for it and are still empty.
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  std::vector<std::string> made_;  // the innermost first
  std::string path_;
  int descriptor_ = -1;
};

// Removes what processes that are no more have left under temporary names (`.minim-PID*.tmp`).
void remove_left_overs(const std::string& folder);

}  // namespace minim::train
