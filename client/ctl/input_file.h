// InputFile: a regular file, opened for reading.
#pragma once

#include <string>

#include "formats/base/bytes.h"
#include "formats/base/result.h"
#include "formats/base/unique_fd.h"

namespace ckptctl {

class InputFile {
 public:
  // kNotFound: there is no such file.
  static ckpt::Result<InputFile> open(const std::string& folder, const std::string& name);

  ckpt::Status read(uint64_t offset, ckpt::MutableByteView into) const;
  // Reads the whole file; fails if it has more than bytes_max bytes.
  ckpt::Result<std::string> read_text(uint64_t bytes_max) const;
  // Fails if the file was written after it was opened.
  ckpt::Status check_unchanged() const;
  const std::string& path() const { return path_; }
  uint64_t bytes() const { return bytes_; }

 private:
  std::string path_;
  ckpt::base::UniqueFd fd_;
  uint64_t bytes_ = 0;
  int64_t changed_ns_ = 0;
};

}  // namespace ckptctl
