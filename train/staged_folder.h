#pragma once

#include <string>
#include <vector>

namespace minim::train {

// A folder inside another, under a temporary name (`.minim-PID.tmp`), in which files are made
// before any of them is seen. If something fails on the way the outer folder is as it was.
class StagedFolder {
 public:
  // Makes both; throws if that fails.
  explicit StagedFolder(const std::string& outer);
  // Removes what was not given another place.
  ~StagedFolder();
  StagedFolder(const StagedFolder&) = delete;
  StagedFolder& operator=(const StagedFolder&) = delete;

  const std::string& path() const { return path_; }

  // Moves the files into the outer folder, over those of their names. config.json, without which a
  // folder is no model, goes first and comes last: a run that is killed meanwhile never leaves a
  // mixture that loads. `obsolete` are names of old files that the new ones make untrue.
  void merge(const std::vector<std::string>& obsolete) const;
  // Makes it the outer folder's subfolder of that name, in one step, in the place of one that is
  // there. On the disk when it returns.
  void become(const std::string& name) const;

 private:
  std::string outer_, path_;
};

// Removes a folder such that none of its name is ever seen with half its files.
void remove_folder(const std::string& path);

}  // namespace minim::train
