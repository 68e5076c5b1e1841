// PwritevDisk: the engine without io_uring. A few threads run preadv2, pwritev2 and fdatasync and
// report through an eventfd. Same guarantees as io_uring, more context switches.
//
// Thread: loop thread only; the workers use only their request and a descriptor. The destructor
// asserts that nothing is in flight, then joins the workers.
#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#include "ckptd/io/posix_files.h"

namespace ckptd {

class PwritevDisk final : public PosixFiles {
 public:
  // Enough concurrent requests for the device; more threads would only queue in the kernel.
  static constexpr unsigned kThreads = 8;

  explicit PwritevDisk(std::string root) : PosixFiles(std::move(root)) {}
  ~PwritevDisk() override;
  Status init();

  // Always kUnavailable: without a ring there is no pinning, and this engine does plain I/O.
  Result<BufferId> register_buffer(MutableByteView memory) override;
  void unregister_buffer(BufferId buffer) override;
  void submit(IoRequest request) override;
  size_t reap() override;
  void wait() override;
  int event_fd() const override { return event_fd_.get(); }
  size_t in_flight() const override { return in_flight_; }
  std::string_view engine_name() const override { return "pwritev"; }

 private:
  struct Job {
    IoRequest request;
    int fd = -1;
    int error = 0;  // errno
    uint64_t moved = 0;
  };
  void work();
  static void run(Job& job);

  ckpt::base::UniqueFd event_fd_;
  size_t in_flight_ = 0;
  bool reaping_ = false;

  std::mutex mutex_;
  std::condition_variable queue_changed_;
  std::condition_variable done_changed_;
  std::deque<Job> queue_;  // guarded by mutex_
  std::vector<Job> done_;  // guarded by mutex_
  bool stop_ = false;      // guarded by mutex_
  std::vector<std::thread> threads_;
};

}  // namespace ckptd
