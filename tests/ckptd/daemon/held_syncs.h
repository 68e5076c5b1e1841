// HeldSyncs forwards to another Disk, but holds back syncs of segments for as long as a test wants.
// Snapshots stay in flight meanwhile. The journal and all other I/O continue.
#pragma once

#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/ckptd/io/passing_disk.h"

namespace ckptd::testing {

class HeldSyncs final : public PassingDisk {
 public:
  using PassingDisk::PassingDisk;

  // Holds back the segment syncs that are submitted from now on.
  void hold() { holding_ = true; }
  size_t held() const { return held_.size(); }
  void release() {
    holding_ = false;
    for (IoRequest& request : std::exchange(held_, {})) disk_.submit(std::move(request));
  }
  // Like release(), but the held syncs fail.
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
  // The daemon is ending and waits for its syncs, so they are released first.
  void wait() override {
    release();
    disk_.wait();
  }
  size_t in_flight() const override { return disk_.in_flight() + held_.size(); }

 private:
  static bool is_segment(std::string_view path) { return path.starts_with("segments/"); }

  bool holding_ = false;
  std::set<FileId> segments_;
  std::vector<IoRequest> held_;
};

}  // namespace ckptd::testing
