// FileChanges: tells when another program has written to a file, by inotify.
#pragma once

#include <chrono>
#include <filesystem>
#include <vector>

#include "formats/base/unique_fd.h"

namespace ckpt::test {

class FileChanges {
 public:
  // Watches all files in these folders, also later ones, but not in subfolders.
  explicit FileChanges(const std::vector<std::filesystem::path>& folders);

  // Waits until a file has changed since the construction or the last call, `other` is readable
  // (-1: none), or the time is over.
  void wait(int other, std::chrono::milliseconds at_most);

 private:
  base::UniqueFd events_;
};

}  // namespace ckpt::test
