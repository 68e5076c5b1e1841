// PacedDisk: another Disk, whose writes take their time by a clock that the test has. Nobody waits.
#pragma once

#include <chrono>
#include <functional>
#include <utility>

#include "ckptd/io/disk.h"

namespace ckptd {

class PacedDisk final : public Disk {
 public:
  PacedDisk(Disk& disk, double bytes_per_second) : disk_(disk), rate_(bytes_per_second) {}

  void set_rate(double bytes_per_second) { rate_ = bytes_per_second; }
  // Each reading takes `tick`, so that what lies between two of them is no longer than that.
  std::chrono::nanoseconds read_clock(std::chrono::nanoseconds tick) { return now_ += tick; }

  // From here on a write of so many bytes takes so many seconds, or fails if they are negative, and
  // nothing is kept of it.
  void set_write_seconds(std::function<double(uint64_t)> seconds) { seconds_ = std::move(seconds); }

  size_t reads_now() const { return reads_now_; }  // calls of read_now()

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
    ++reads_now_;
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
  void wait() override { disk_.wait(); }
  int event_fd() const override { return disk_.event_fd(); }
  size_t in_flight() const override { return disk_.in_flight(); }
  std::string_view engine_name() const override { return disk_.engine_name(); }

 private:
  Disk& disk_;
  double rate_;
  std::function<double(uint64_t)> seconds_;
  std::chrono::nanoseconds now_{0};
  size_t reads_now_ = 0;
};

}  // namespace ckptd
