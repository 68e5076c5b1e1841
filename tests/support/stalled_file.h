// A file whose last close stalls for as long as the test likes: of a FUSE file system that answers
// everything but the FLUSH of other processes' descriptors. Needs root and /dev/fuse.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <thread>

#include "formats/base/unique_fd.h"
#include "tests/support/temp_folder.h"

namespace ckpt::test {

class StalledFile {
 public:
  // Null: there is no FUSE here, or no right to mount.
  static std::unique_ptr<StalledFile> mount();
  ~StalledFile();  // lets go of whoever is stalled
  StalledFile(const StalledFile&) = delete;
  StalledFile& operator=(const StalledFile&) = delete;

  // Opens the file. The test's own close of this descriptor is answered: the first FLUSH is.
  base::UniqueFd open() const;
  // Waits until somebody is stalled in a close. False: not within a minute.
  bool wait_until_stalled() const;

 private:
  explicit StalledFile(base::UniqueFd device) : device_(std::move(device)) {}
  void serve();
  void answer(uint64_t unique, int error, const void* bytes, size_t length) const;

  TempFolder folder_;
  base::UniqueFd device_;
  base::UniqueFd stop_;
  std::atomic<size_t> flushes_{0};
  std::thread thread_;
};

}  // namespace ckpt::test
