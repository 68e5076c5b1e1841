// Scratch files and memory of benches.
#pragma once

#include <string>
#include <utility>

#include "formats/base/bytes.h"
#include "formats/base/result.h"

namespace bench {

// A new directory that is removed with everything in it, also when the bench is stopped by SIGINT
// or SIGTERM (remove_scratch_when_stopped).
class ScratchDirectory {
 public:
  static ckpt::Result<ScratchDirectory> make(const std::string& below);
  ScratchDirectory(ScratchDirectory&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  ScratchDirectory& operator=(ScratchDirectory&& other) noexcept {
    std::swap(path_, other.path_);
    return *this;
  }
  ~ScratchDirectory();
  const std::string& path() const { return path_; }

 private:
  explicit ScratchDirectory(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

// From here on SIGINT and SIGTERM remove every scratch directory and end the program with 128 + the
// signal's number.
void remove_scratch_when_stopped();

// Waits until the file system has nothing left to do: freed blocks are discarded when its journal
// has committed, and would slow down whatever is measured next. At most half a minute.
void settle(const std::string& directory);

// Incompressible bytes: disks and file systems that compress or deduplicate get nothing for free.
void fill_random(ckpt::MutableByteView bytes, uint64_t seed);

}  // namespace bench
