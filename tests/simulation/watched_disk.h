// WatchedDisk: passes everything on to another Disk and says so before each call that can change
// it, so that a test can stop the world in the middle of something that is one call: a recovery.
#pragma once

#include <functional>
#include <utility>

#include "ckptd/io/disk.h"

namespace ckptd::testing {

class WatchedDisk final : public Disk {
 public:
  // `before_change` may look at the disk below; calls must not come from there.
  WatchedDisk(Disk& disk, std::function<void()> before_change)
      : disk_(disk), before_change_(std::move(before_change)) {}

  Result<FileId> open(std::string_view path, const OpenOptions& options) override {
    if (options.create) before_change_();
    return disk_.open(path, options);
  }
  Result<NewFile> create_file(std::string_view path, uint64_t preallocate_bytes) override {
    before_change_();
    return disk_.create_file(path, preallocate_bytes);
  }
  FileId adopt(NewFile file) override { return disk_.adopt(std::move(file)); }
  void close(FileId file) override { disk_.close(file); }
  Result<ckpt::base::UniqueFd> share(std::string_view path) override { return disk_.share(path); }
  Result<uint64_t> read_now(FileId file, uint64_t offset, MutableByteView memory) override {
    return disk_.read_now(file, offset, memory);
  }
  Result<uint64_t> size(FileId file) override { return disk_.size(file); }
  Status truncate(FileId file, uint64_t bytes) override {
    before_change_();
    return disk_.truncate(file, bytes);
  }
  Result<std::vector<std::string>> list(std::string_view directory) override {
    return disk_.list(directory);
  }
  Status make_directory(std::string_view path) override {
    before_change_();
    return disk_.make_directory(path);
  }
  Status remove(std::string_view path) override {
    before_change_();
    return disk_.remove(path);
  }
  Status sync_directory(std::string_view path) override {
    before_change_();
    return disk_.sync_directory(path);
  }
  Result<Space> space() override { return disk_.space(); }
  Result<BufferId> register_buffer(MutableByteView memory) override {
    return disk_.register_buffer(memory);
  }
  void unregister_buffer(BufferId buffer) override { disk_.unregister_buffer(buffer); }
  void submit(IoRequest request) override {
    if (request.op != IoOp::kRead) before_change_();
    disk_.submit(std::move(request));
  }
  size_t reap() override {
    if (disk_.in_flight() > 0) before_change_();
    return disk_.reap();
  }
  void wait() override { disk_.wait(); }
  int event_fd() const override { return disk_.event_fd(); }
  size_t in_flight() const override { return disk_.in_flight(); }
  std::string_view engine_name() const override { return disk_.engine_name(); }

 private:
  Disk& disk_;
  const std::function<void()> before_change_;
};

}  // namespace ckptd::testing
