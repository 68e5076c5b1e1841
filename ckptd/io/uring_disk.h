// UringDisk: segments and journal through one io_uring.
//
// Requests that find the ring full wait in a separate queue, in order. A short write is continued
// until it is complete. Callbacks run only from reap(), after the completion queue was emptied, so
// a callback may submit but never re-enters reap().
//
// Thread: loop thread only. The destructor asserts that nothing is in flight.
#pragma once

#include <liburing.h>

#include <deque>
#include <vector>

#include "ckptd/io/fixed_buffers.h"
#include "ckptd/io/posix_files.h"

namespace ckptd {

class UringDisk final : public PosixFiles {
 public:
  explicit UringDisk(std::string root) : PosixFiles(std::move(root)) {}
  ~UringDisk() override;

  // kUnavailable if io_uring is unavailable.
  Status init();

  Result<BufferId> register_buffer(MutableByteView memory) override;
  void unregister_buffer(BufferId buffer) override;
  void submit(IoRequest request) override;
  size_t reap() override;
  void wait() override;
  int event_fd() const override { return event_fd_.get(); }
  size_t in_flight() const override { return queued_.size() + in_kernel_; }
  std::string_view engine_name() const override { return "uring"; }

 private:
  struct Operation {
    IoRequest request;
    uint64_t done = 0;  // bytes moved so far
    bool busy = false;
  };
  struct Finished {
    std::function<void(Result<uint64_t>)> on_done;
    Result<uint64_t> result;
  };

  void fill_ring();
  void prepare(io_uring_sqe* sqe, size_t index);
  // Result of a completion; nullopt if the operation continues (and was queued again).
  std::optional<Result<uint64_t>> settle(Operation& operation, int result);

  io_uring ring_{};
  bool ring_open_ = false;
  ckpt::base::UniqueFd event_fd_;
  FixedBuffers buffers_;
  std::vector<Operation> operations_;  // by index; indices are the ring's user data
  std::vector<size_t> free_operations_;
  std::deque<size_t> queued_;  // not yet in the kernel
  size_t in_kernel_ = 0;
  bool reaping_ = false;
};

}  // namespace ckptd
