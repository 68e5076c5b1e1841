// ExportFolder: the folder that an export writes to, and the files that are already there.
//
// Files of an earlier export are replaced or removed: those that its ckptd.json describes and whose
// size and checksums still match. Any other file in the way is an error that names the file.
//
// The new files appear when all of them are written. While files are renamed, ckptd.json says
// "unfinished" and lists the files of both exports: import refuses such a folder, and the next
// export repairs it. An export that fails removes the folders that it created, if they are empty.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "client/ctl/input_file.h"
#include "client/ctl/manifest.h"
#include "client/ctl/new_file.h"

namespace ckptctl {

class ExportFolder {
 public:
  // Creates the folder if it does not exist, locks it against other exports, and removes leftovers
  // of an interrupted export. `names`: files that will be written, without ckptd.json. Weights
  // alone (not `resumable`) never replace a resumable export, which may be a run's only backup.
  // Reads the files of an earlier export once; `each` is called after each part.
  static Result<ExportFolder> open(const std::string& path, std::vector<std::string> names,
                                   bool resumable, const InputFile::EachPart& each = {});
  ExportFolder(ExportFolder&&) noexcept = default;
  ExportFolder& operator=(ExportFolder&&) = delete;
  // Must run after the destructors of the files that create() returned.
  ~ExportFolder() { remove_created(); }

  Result<NewFile> create(const std::string& name, uint64_t bytes);
  // Publishes the files in order, then ckptd.json. manifest.files describes them. All of them are
  // on disk before the earlier export is touched; after that, only renames remain. Returns the
  // names of the earlier export's files that were removed.
  Result<std::vector<std::string>> publish(std::vector<NewFile>& files, Manifest manifest);

 private:
  ExportFolder(std::string path, std::vector<std::string> names, bool resumable)
      : path_(std::move(path)), names_(std::move(names)), resumable_(resumable) {}
  // Creates the folder and its missing parents.
  Status make_folder(const std::string& path);
  void remove_created() const;
  Status lock();
  // Removes leftovers of interrupted exports and reads the manifest. Refuses files in the way.
  Status prepare(const InputFile::EachPart& each);
  Status take_earlier(const Manifest& earlier, const InputFile::EachPart& each);
  std::string at(const std::string& name) const { return path_ + "/" + name; }
  bool is_new(const std::string& name) const;
  Status write_manifest(const Manifest& manifest);
  Status remove(const std::string& name) const;
  Status sync_folders() const;
  // The folder, and its subfolders that will contain new files.
  std::set<std::string> folders() const;

  std::string path_;
  std::vector<std::string> names_;
  bool resumable_;
  std::vector<ExportedFile> earlier_;  // existing files of an earlier export
  std::vector<std::string> created_;   // folders to remove after a failure, parents first
  ckpt::base::UniqueFd lock_;
};

}  // namespace ckptctl
