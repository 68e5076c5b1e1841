// A file whose close stalls for as long as the test likes: of a FUSE file system that answers
// everything but FLUSH, which each close of a descriptor sends. Needs root and /dev/fuse.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "formats/base/unique_fd.h"
#include "tests/support/temp_folder.h"

namespace ckpt::test {

class StalledFile {
 public:
  // Null: there is no FUSE here, or no right to mount.
  static std::unique_ptr<StalledFile> mount();
  ~StalledFile();  // unblocks all stalled closes
  StalledFile(const StalledFile&) = delete;
  StalledFile& operator=(const StalledFile&) = delete;

  // Opens the file. Closes by the thread that calls this are answered.
  base::UniqueFd open();
  // Waits until a close is stalled. False after a minute.
  bool wait_until_stalled() const;
  // Answers all stalled closes, and every later one.
  void unblock();

 private:
  explicit StalledFile(base::UniqueFd device) : device_(std::move(device)) {}
  void serve();
  void flush(uint64_t unique, pid_t thread);
  void answer(uint64_t unique, int error, const void* bytes, size_t length) const;

  TempFolder folder_;
  base::UniqueFd device_;
  base::UniqueFd stop_;
  std::atomic<pid_t> own_thread_{0};
  mutable std::mutex mutex_;
  std::vector<uint64_t> stalled_;  // their requests
  bool stalls_ = true;
  std::thread thread_;
};

}  // namespace ckpt::test
