// ExportFolder: the folder that an export writes to, and what becomes of what is there.
//
// Files of an earlier export are replaced or removed: those that its ckptd.json describes and
// whose size and header CRC32C still match ckptd.json. Anything else in the way is an error that
// names the file. The new files appear when all of them are written. While they take their places,
// ckptd.json says "unfinished" and lists both exports' files: a folder left in between is refused
// by import and mended by the next export.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "client/ctl/manifest.h"
#include "client/ctl/new_file.h"

namespace ckptctl {

class ExportFolder {
 public:
  // Makes the folder if it is not there, locks it against other exports, and removes what an
  // interrupted one has left. `names`: of the files to come, but for ckptd.json.
  static Result<ExportFolder> open(const std::string& path, std::vector<std::string> names);

  Result<NewFile> create(const std::string& name, uint64_t bytes);
  // The files in the order in which they are to appear, then ckptd.json. manifest.files describes
  // them. All of them are on disk before the earlier export is touched: what is left then are
  // renames. Returns the names of the earlier export's files that were removed.
  Result<std::vector<std::string>> publish(std::vector<NewFile>& files, Manifest manifest);

 private:
  explicit ExportFolder(std::string path) : path_(std::move(path)) {}
  Status lock();
  // Removes leftovers of interrupted exports and reads the manifest. Refuses files of others.
  Status prepare();
  Status take_earlier(const Manifest& earlier);
  std::string at(const std::string& name) const { return path_ + "/" + name; }
  bool is_new(const std::string& name) const;
  Status write_manifest(const Manifest& manifest);
  Status remove(const std::string& name) const;
  Status sync_folders() const;
  // The folder, and those in it that the files to come are in.
  std::set<std::string> folders() const;

  std::string path_;
  std::vector<std::string> names_;
  std::vector<ExportedFile> earlier_;  // files of an earlier export that are there
  ckpt::base::UniqueFd lock_;
};

// How ckptd.json describes a file of this size that begins with `head`.
ExportedFile describe_file(std::string name, uint64_t bytes, ckpt::ByteView head);

}  // namespace ckptctl
