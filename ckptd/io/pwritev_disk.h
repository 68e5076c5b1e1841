// PwritevDisk: the engine for places without io_uring. A few threads run preadv2, pwritev2 and
// fdatasync and report through an eventfd. Same promises as the ring, more context switches.
//
// Thread: loop thread only; the workers see nothing but their request and a descriptor. The
// destructor asserts that nothing is in flight, then joins the workers.
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
  // Enough requests in the device at once; more threads only queue in the kernel.
  static constexpr unsigned kThreads = 8;

  explicit PwritevDisk(std::string root) : PosixFiles(std::move(root)) {}
  ~PwritevDisk() override;
  Status init();

  // There is no pinning without a ring: plain I/O is what this engine does.
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
