// HeldSyncs: passes everything on to another Disk, but keeps back syncs of segments for as long as
// a test wants. So snapshots stay on their way while the journal, and all else, goes on.
#pragma once

#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "ckptd/io/disk.h"

namespace ckptd::testing {

class HeldSyncs final : public Disk {
 public:
  explicit HeldSyncs(Disk& disk) : disk_(disk) {}

  // From here on.
  void hold() { holding_ = true; }
  size_t held() const { return held_.size(); }
  void release() {
    holding_ = false;
    for (IoRequest& request : std::exchange(held_, {})) disk_.submit(std::move(request));
  }
  // As release(), but those that were kept back fail.
  void fail() {
    for (IoRequest& request : held_) {
      request.on_done = [on_done = std::move(request.on_done)](const Result<uint64_t>&) {
        on_done(ckpt::make_error(ckpt::ErrorCode::kIo, "the sync failed"));
      };
    }
    release();
  }

  void submit(IoRequest request) override {
    if (holding_ && request.op == IoOp::kSync && segments_.contains(request.file)) {
      return held_.push_back(std::move(request));
    }
    disk_.submit(std::move(request));
  }
  Result<FileId> open(std::string_view path, const OpenOptions& options) override {
    auto file = disk_.open(path, options);
    if (file.ok() && is_segment(path)) segments_.insert(*file);
    return file;
  }
  FileId adopt(NewFile file) override {
    const bool segment = is_segment(file.path);
    const FileId id = disk_.adopt(std::move(file));
    if (segment) segments_.insert(id);
    return id;
  }
  // Whoever waits is ending, and for them.
  void wait() override {
    release();
    disk_.wait();
  }
  size_t in_flight() const override { return disk_.in_flight() + held_.size(); }

  Result<NewFile> create_file(std::string_view path, uint64_t preallocate_bytes) override {
    return disk_.create_file(path, preallocate_bytes);
  }
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
  Status sync_directory(std::string_view path) override { return disk_.sync_directory(path); }
  Result<Space> space() override { return disk_.space(); }
  Result<BufferId> register_buffer(MutableByteView memory) override {
    return disk_.register_buffer(memory);
  }
  void unregister_buffer(BufferId buffer) override { disk_.unregister_buffer(buffer); }
  size_t reap() override { return disk_.reap(); }
  int event_fd() const override { return disk_.event_fd(); }
  std::string_view engine_name() const override { return disk_.engine_name(); }

 private:
  static bool is_segment(std::string_view path) { return path.starts_with("segments/"); }

  Disk& disk_;
  bool holding_ = false;
  std::set<FileId> segments_;
  std::vector<IoRequest> held_;
};

}  // namespace ckptd::testing
