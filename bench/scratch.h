// Scratch files and memory of benches.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <random>
#include <string>

#include "formats/base/bytes.h"
#include "formats/base/result.h"
#include "formats/base/unique_fd.h"

namespace bench {

// A new directory that is removed with everything in it.
class ScratchDirectory {
 public:
  static ckpt::Result<ScratchDirectory> make(const std::string& below) {
    std::string pattern = below + "/ckptbench_XXXXXX";
    if (::mkdtemp(pattern.data()) == nullptr) {
      return ckpt::make_error(ckpt::ErrorCode::kIo, "{}: no directory can be made here", below);
    }
    return ScratchDirectory(std::move(pattern));
  }
  ScratchDirectory(ScratchDirectory&& other) noexcept : path_(std::move(other.path_)) {
    other.path_.clear();
  }
  ScratchDirectory& operator=(ScratchDirectory&& other) noexcept {
    std::swap(path_, other.path_);
    return *this;
  }
  ~ScratchDirectory() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }

 private:
  explicit ScratchDirectory(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

// Waits until the file system has nothing left to do: freed blocks are discarded when its journal
// commits, seconds after a file was removed, and would slow down whatever is measured next.
inline void settle(const std::string& directory) {
  const ckpt::base::UniqueFd fd(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (fd.valid()) ::syncfs(fd.get());
}

// Incompressible bytes: disks and file systems that compress or deduplicate get nothing for free.
inline void fill_random(ckpt::MutableByteView bytes, uint64_t seed) {
  std::mt19937_64 random(seed);
  for (size_t at = 0; at + 8 <= bytes.size(); at += 8) {
    ckpt::base::store(bytes.data() + at, random());
  }
}

}  // namespace bench
