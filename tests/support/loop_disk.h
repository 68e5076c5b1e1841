// LoopDisk: a file system of its own, ext4 in a file behind a loop device, that a test may fill to
// the last block. Where that cannot be had, as without root, missing() says why.
#pragma once

#include <cstdint>
#include <string>

#include "tests/support/temp_folder.h"

namespace ckpt::test {

class LoopDisk {
 public:
  explicit LoopDisk(uint64_t bytes);
  LoopDisk(const LoopDisk&) = delete;
  LoopDisk& operator=(const LoopDisk&) = delete;
  ~LoopDisk();  // whatever uses it has ended

  const std::string& missing() const { return missing_; }
  std::string path(const std::string& name) const { return folder_.path("mounted/" + name); }
  // fill() takes all free space, as another program would; empty() releases it.
  void fill();
  void empty();

 private:
  TempFolder folder_;
  std::string missing_;
};

}  // namespace ckpt::test
