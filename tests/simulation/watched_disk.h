// WatchedDisk: passes everything on to another Disk and says so before each call that can change
// it, so that a test can stop the world in the middle of something that is one call: a recovery.
#pragma once

#include <functional>
#include <utility>

#include "tests/ckptd/io/passing_disk.h"

namespace ckptd::testing {

class WatchedDisk final : public PassingDisk {
 public:
  // `before_change` may look at the disk below; calls must not come from there.
  WatchedDisk(Disk& disk, std::function<void()> before_change)
      : PassingDisk(disk), before_change_(std::move(before_change)) {}

  Result<FileId> open(std::string_view path, const OpenOptions& options) override {
    if (options.create) before_change_();
    return disk_.open(path, options);
  }
  Result<NewFile> create_file(std::string_view path, uint64_t preallocate_bytes) override {
    before_change_();
    return disk_.create_file(path, preallocate_bytes);
  }
  Status truncate(FileId file, uint64_t bytes) override {
    before_change_();
    return disk_.truncate(file, bytes);
  }
  Status make_directory(std::string_view path) override {
    before_change_();
    return disk_.make_directory(path);
  }
  Status remove(std::string_view path) override {
    before_change_();
    return disk_.remove(path);
  }
  Status rename(std::string_view from, std::string_view to) override {
    before_change_();
    return disk_.rename(from, to);
  }
  Status sync_directory(std::string_view path) override {
    before_change_();
    return disk_.sync_directory(path);
  }
  void submit(IoRequest request) override {
    if (request.op != IoOp::kRead) before_change_();
    disk_.submit(std::move(request));
  }
  size_t reap() override {
    if (disk_.in_flight() > 0) before_change_();
    return disk_.reap();
  }

 private:
  const std::function<void()> before_change_;
};

}  // namespace ckptd::testing
