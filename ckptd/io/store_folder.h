// The data directory before it contains a store: checks that it is free for one, and removes it if
// the startup that created it fails.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "formats/base/result.h"

namespace ckptd {

// kFailedPrecondition: the directory has files of others and no store; the message names one of
// them. Free for a store: a missing or empty directory, the top of a file system (lost+found), and
// the rest of a first start that was interrupted. Hidden entries (.snapshot) do not count, and
// neither does the socket `listen`.
ckpt::Status check_store_folder(const std::string& path, const std::string& listen = {});

// The directory and those above it that do not exist, lowest first.
std::vector<std::filesystem::path> missing_folders(const std::string& path);

// Removes directories that this start has created, unless the lowest has more in it than lock files
// when this object ends. The caller holds the store's lock until then.
class NewStoreFolder {
 public:
  // `created`: missing_folders() before they were created.
  explicit NewStoreFolder(std::vector<std::filesystem::path> created)
      : created_(std::move(created)) {}
  NewStoreFolder(const NewStoreFolder&) = delete;
  NewStoreFolder& operator=(const NewStoreFolder&) = delete;
  ~NewStoreFolder();

 private:
  const std::vector<std::filesystem::path> created_;
};

}  // namespace ckptd
