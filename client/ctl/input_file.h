// InputFile: a regular file, opened for reading.
#pragma once

#include <functional>
#include <string>
#include <vector>

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
  // Its first bytes; all of them if it has fewer.
  ckpt::Result<std::vector<std::byte>> read_head(uint64_t bytes) const;
  // CRC32C of the whole file, read once and in order, in little memory. `each`, if there is one, is
  // called after each part with its size; its error ends the reading.
  using EachPart = std::function<ckpt::Status(uint64_t bytes)>;
  ckpt::Result<uint32_t> crc32c(const EachPart& each = {}) const;
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
