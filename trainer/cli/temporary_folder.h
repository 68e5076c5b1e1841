// TemporaryFolder: a new folder that is removed with its content when the object goes.
#pragma once

#include <filesystem>
#include <string>
#include <utility>

#include "formats/base/result.h"

namespace moetrain {

class TemporaryFolder {
 public:
  // Makes NAME-XXXXXX below TMPDIR, or below /tmp. kIo names the variable that can be changed.
  static ckpt::Result<TemporaryFolder> make(const std::string& name);

  TemporaryFolder(TemporaryFolder&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  TemporaryFolder& operator=(TemporaryFolder&&) = delete;
  ~TemporaryFolder() { remove(); }

  const std::filesystem::path& path() const { return path_; }
  // Removes the folder now. Changes nothing in this object, so any thread may call it.
  void remove() const;
  // The folder stays when the object goes.
  void keep() { path_.clear(); }

 private:
  explicit TemporaryFolder(std::filesystem::path path) : path_(std::move(path)) {}
  std::filesystem::path path_;
};

}  // namespace moetrain
