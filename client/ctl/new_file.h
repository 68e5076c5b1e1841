// NewFile: a file that appears under its name only when all of it is on disk.
#pragma once

#include <string>

#include "formats/base/bytes.h"
#include "formats/base/result.h"
#include "formats/base/unique_fd.h"

namespace ckptctl {

// Written under a temporary name in the same folder; commit() syncs, renames, and syncs the folder.
// Destroyed before that, it leaves nothing behind.
class NewFile {
 public:
  static ckpt::Result<NewFile> create(const std::string& folder, const std::string& name,
                                      uint64_t bytes);
  NewFile(NewFile&& other) noexcept;
  NewFile& operator=(NewFile&&) = delete;
  ~NewFile();

  ckpt::Status write(uint64_t offset, ckpt::ByteView bytes);
  ckpt::Status commit();

 private:
  NewFile(std::string folder, std::string name, std::string temporary, ckpt::base::UniqueFd fd);
  std::string folder_;
  std::string name_;
  std::string temporary_;  // empty once committed
  ckpt::base::UniqueFd fd_;
};

// The whole file at once. A link, a pipe or a device is written through, not replaced.
ckpt::Status write_text_file(const std::string& path, const std::string& text);

}  // namespace ckptctl
