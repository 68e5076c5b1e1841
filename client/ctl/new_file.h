// NewFile: a file that appears under its name only when all of it is on disk.
#pragma once

#include <string>
#include <string_view>

#include "formats/base/bytes.h"
#include "formats/base/result.h"
#include "formats/base/unique_fd.h"

namespace ckptctl {

// Written without a name (O_TMPFILE), so that nothing is left however the process ends. On file
// systems without such files it is written under a hidden name, which the destructor, SIGINT,
// SIGTERM and SIGHUP remove (unlink_on_signal.h). What a killed process leaves, remove_leftovers()
// finds: a hidden file is locked (flock) as long as its NewFile lives.
class NewFile {
 public:
  enum class Way { kUnnamed, kHidden };
  // `name`: a path in the folder, whose folders are there. The hidden name is in `folder` itself,
  // or beside the file if its folder is a mount of its own.
  static ckpt::Result<NewFile> create(const std::string& folder, const std::string& name,
                                      uint64_t bytes, Way way = Way::kUnnamed);
  NewFile(NewFile&& other) noexcept;
  NewFile& operator=(NewFile&&) = delete;
  ~NewFile();

  ckpt::Status write(uint64_t offset, ckpt::ByteView bytes);
  // The three steps of commit(), for several files that are to appear together. After hide() only
  // the rename is left. The caller syncs the folders after the last rename().
  ckpt::Status sync();
  ckpt::Status hide();
  ckpt::Status rename();
  // All three, and syncs the folder.
  ckpt::Status commit();

 private:
  NewFile(std::string path, std::string base_path)
      : path_(std::move(path)), base_path_(std::move(base_path)) {}
  ckpt::Status open_hidden();
  void remove_hidden();

  std::string path_;
  std::string base_path_;  // the path that the hidden name is made of
  std::string hidden_;     // its name until it is committed; empty: it has none
  ckpt::base::UniqueFd fd_;
};

// True for hidden names that NewFile gives.
bool is_unfinished(std::string_view name);

// Removes the folder's files with such names, except those that a living NewFile has locked. Where
// files cannot be locked, nothing is removed. A folder that is not there is no error.
ckpt::Status remove_leftovers(const std::string& folder);

// Makes the folder's new names durable.
ckpt::Status sync_folder(const std::string& folder);

// The whole file at once. A link, a pipe or a device is written through, not replaced.
ckpt::Status write_text_file(const std::string& path, const std::string& text);

}  // namespace ckptctl
