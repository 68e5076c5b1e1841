// PacedDisk: forwards to another Disk, and its writes take time on a clock of the test. No sleeps.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "tests/ckptd/io/passing_disk.h"

namespace ckptd {

class PacedDisk final : public PassingDisk {
 public:
  PacedDisk(Disk& disk, double bytes_per_second) : PassingDisk(disk), rate_(bytes_per_second) {}

  void set_rate(double bytes_per_second) { rate_ = bytes_per_second; }
  // Each reading takes `tick`, so that what lies between two of them is no longer than that.
  std::chrono::nanoseconds read_clock(std::chrono::nanoseconds tick) { return now_ += tick; }

  // `seconds`: duration of a later write by its number of bytes. A negative duration makes the
  // write fail, without any effect.
  void set_write_seconds(std::function<double(uint64_t)> seconds) { seconds_ = std::move(seconds); }

  // Calls of read_now() for the files that were opened by this path.
  size_t reads_of(std::string_view path) const {
    const auto found = reads_.find(path);
    return found == reads_.end() ? 0 : found->second;
  }

  Result<FileId> open(std::string_view path, const OpenOptions& options) override {
    auto file = disk_.open(path, options);
    if (file.ok()) paths_[*file] = path;
    return file;
  }

  void submit(IoRequest request) override {
    if (request.op == IoOp::kWrite && seconds_) {
      const uint64_t bytes = request.memory.size();
      request.on_done = [this, bytes,
                         on_done = std::move(request.on_done)](const Result<uint64_t>&) {
        const double seconds = seconds_(bytes);
        if (seconds < 0) {
          on_done(ckpt::make_error(ckpt::ErrorCode::kIo, "a write of {} bytes", bytes));
          return;
        }
        now_ += std::chrono::nanoseconds(static_cast<int64_t>(seconds * 1e9));
        on_done(bytes);
      };
      request.op = IoOp::kSync;
      request.memory = {};
    } else if (request.op == IoOp::kWrite) {
      const double seconds = static_cast<double>(request.memory.size()) / rate_;
      request.on_done = [this, seconds,
                         on_done = std::move(request.on_done)](const Result<uint64_t>& result) {
        now_ += std::chrono::nanoseconds(static_cast<int64_t>(seconds * 1e9));
        on_done(result);
      };
    }
    disk_.submit(std::move(request));
  }

  Result<uint64_t> read_now(FileId file, uint64_t offset, MutableByteView memory) override {
    ++reads_[paths_[file]];
    return disk_.read_now(file, offset, memory);
  }

 private:
  double rate_;
  std::function<double(uint64_t)> seconds_;
  std::chrono::nanoseconds now_{0};
  std::map<FileId, std::string> paths_;
  std::map<std::string, size_t, std::less<>> reads_;  // by path
};

}  // namespace ckptd
