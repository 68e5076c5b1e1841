// NewFile: a file that appears under its name only when all of it is on disk.
#pragma once

#include <string>
#include <string_view>

#include "formats/base/bytes.h"
#include "formats/base/result.h"
#include "formats/base/unique_fd.h"

namespace ckptctl {

// Written without a name (O_TMPFILE), so that nothing is left however the process ends. Other file
// systems use a hidden name, which the destructor and unlink_on_signal.h remove.
// remove_leftovers() removes the file of a killed process: a hidden file is
// locked (flock) as long as its NewFile lives.
class NewFile {
 public:
  enum class Way { kUnnamed, kHidden };
  // `name`: a path in the folder, whose folders exist. The hidden name is in `folder` itself, or
  // beside the file if the file's folder is a mount of its own.
  static ckpt::Result<NewFile> create(const std::string& folder, const std::string& name,
                                      uint64_t bytes, Way way = Way::kUnnamed);
  NewFile(NewFile&& other) noexcept;
  NewFile& operator=(NewFile&&) = delete;
  ~NewFile();

  ckpt::Status write(uint64_t offset, ckpt::ByteView bytes);
  // The three steps of commit(), for several files that appear together. After hide(), only the
  // rename is left. The caller syncs the folders after the last rename().
  ckpt::Status sync();
  ckpt::Status hide();
  ckpt::Status rename();
  // All three steps, and the sync of the folder.
  ckpt::Status commit();

 private:
  NewFile(std::string path, std::string base_path)
      : path_(std::move(path)), base_path_(std::move(base_path)) {}
  ckpt::Status open_hidden();
  void remove_hidden();

  std::string path_;
  std::string base_path_;  // the path that the hidden name is made of
  std::string hidden_;     // name until the commit; empty: none
  ckpt::base::UniqueFd fd_;
};

// True for hidden names that NewFile gives.
bool is_unfinished(std::string_view name);

// Removes the folder's files with such names, except files that a living NewFile has locked. On
// file systems without locks, removes nothing. A missing folder is no error.
ckpt::Status remove_leftovers(const std::string& folder);

// Makes new names in the folder durable.
ckpt::Status sync_folder(const std::string& folder);

// Writes a whole file. A link, a pipe or a device is written in place, not replaced.
ckpt::Status write_text_file(const std::string& path, const std::string& text);

}  // namespace ckptctl
