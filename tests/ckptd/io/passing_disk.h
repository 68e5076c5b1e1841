// PassingDisk: forwards everything to another Disk. Doubles of disks override single functions.
#pragma once

#include <string_view>
#include <utility>

#include "ckptd/io/disk.h"

namespace ckptd {

class PassingDisk : public Disk {
 public:
  explicit PassingDisk(Disk& disk) : disk_(disk) {}

  Result<FileId> open(std::string_view path, const OpenOptions& options) override {
    return disk_.open(path, options);
  }
  Result<NewFile> create_file(std::string_view path, uint64_t preallocate_bytes) override {
    return disk_.create_file(path, preallocate_bytes);
  }
  FileId adopt(NewFile file) override { return disk_.adopt(std::move(file)); }
  void close(FileId file) override { disk_.close(file); }
  Result<ckpt::base::UniqueFd> share(std::string_view path) override { return disk_.share(path); }
  Result<uint64_t> read_now(FileId file, uint64_t offset, MutableByteView memory) override {
    return disk_.read_now(file, offset, memory);
  }
  Result<uint64_t> size(FileId file) override { return disk_.size(file); }
  Status truncate(FileId file, uint64_t bytes) override { return disk_.truncate(file, bytes); }
  Result<std::vector<std::string>> list(std::string_view directory) override {
    return disk_.list(directory);
  }
  Status make_directory(std::string_view path) override { return disk_.make_directory(path); }
  Status remove(std::string_view path) override { return disk_.remove(path); }
  Status rename(std::string_view from, std::string_view to) override {
    return disk_.rename(from, to);
  }
  Status sync_directory(std::string_view path) override { return disk_.sync_directory(path); }
  Result<Space> space() override { return disk_.space(); }
  Result<BufferId> register_buffer(MutableByteView memory) override {
    return disk_.register_buffer(memory);
  }
  void unregister_buffer(BufferId buffer) override { disk_.unregister_buffer(buffer); }
  void submit(IoRequest request) override { disk_.submit(std::move(request)); }
  size_t reap() override { return disk_.reap(); }
  void wait() override { disk_.wait(); }
  int event_fd() const override { return disk_.event_fd(); }
  size_t in_flight() const override { return disk_.in_flight(); }
  std::string_view engine_name() const override { return disk_.engine_name(); }

 protected:
  Disk& disk_;
};

}  // namespace ckptd
