// NewFile: a file that appears under its name only when all of it is on disk.
#pragma once

#include <string>
#include <string_view>

#include "formats/base/bytes.h"
#include "formats/base/result.h"
#include "formats/base/unique_fd.h"

namespace ckptctl {

// Written without a name (O_TMPFILE), so that nothing is left however the process ends; commit()
// syncs the file, gives it its name, and syncs the folder. On file systems without such files it is
// written under a hidden name, which the destructor, SIGINT, SIGTERM and SIGHUP remove
// (unlink_on_signal.h) and a later export finds by is_unfinished().
class NewFile {
 public:
  enum class Way { kUnnamed, kHidden };
  // `name`: a path in the folder, whose folders are there.
  static ckpt::Result<NewFile> create(const std::string& folder, const std::string& name,
                                      uint64_t bytes, Way way = Way::kUnnamed);
  NewFile(NewFile&& other) noexcept;
  NewFile& operator=(NewFile&&) = delete;
  ~NewFile();

  ckpt::Status write(uint64_t offset, ckpt::ByteView bytes);
  ckpt::Status commit();

 private:
  NewFile(std::string path, ckpt::base::UniqueFd fd) : path_(std::move(path)), fd_(std::move(fd)) {}
  ckpt::Status open_hidden();
  ckpt::Status link_hidden();
  void remove_hidden();

  std::string path_;
  std::string hidden_;  // its name until it is committed; empty: it has none
  ckpt::base::UniqueFd fd_;
};

// True for hidden names that NewFile gives.
bool is_unfinished(std::string_view name);

// The whole file at once. A link, a pipe or a device is written through, not replaced.
ckpt::Status write_text_file(const std::string& path, const std::string& text);

}  // namespace ckptctl
