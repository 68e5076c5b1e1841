#include "ckptd/io/pwritev_disk.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>

#include "ckptd/io/engines.h"

namespace ckptd {

Result<std::unique_ptr<Disk>> open_pwritev_disk(const std::string& root) {
  auto disk = std::make_unique<PwritevDisk>(root);
  CKPT_TRY(disk->open_root());
  CKPT_TRY(disk->init());
  return std::unique_ptr<Disk>(std::move(disk));
}

Status PwritevDisk::init() {
  event_fd_.reset(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!event_fd_.valid()) return errno_error(errno, "eventfd");
  for (unsigned i = 0; i < kThreads; ++i) threads_.emplace_back([this] { work(); });
  return {};
}

PwritevDisk::~PwritevDisk() {
  CKPT_ASSERT_MSG(in_flight_ == 0, "a disk was closed with I/O in flight");
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  queue_changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

Result<BufferId> PwritevDisk::register_buffer(MutableByteView) {
  return ckpt::make_error(ckpt::ErrorCode::kUnavailable,
                          "the pwritev engine does not register buffers");
}

void PwritevDisk::unregister_buffer(BufferId) {
  CKPT_ASSERT_MSG(false, "the pwritev engine has no buffers");
}

void PwritevDisk::submit(IoRequest request) {
  const int fd = descriptor(request.file);
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back(Job{.request = std::move(request), .fd = fd});
  }
  ++in_flight_;
  queue_changed_.notify_one();
}

void PwritevDisk::run(Job& job) {
  const IoRequest& request = job.request;
  if (request.op == IoOp::kSync) {
    if (::fdatasync(job.fd) != 0) job.error = errno;
    return;
  }
  if (request.op == IoOp::kAllocate || request.op == IoOp::kPunch) {
    if (::fallocate(job.fd, fallocate_mode(request.op), static_cast<off_t>(request.offset),
                    static_cast<off_t>(request.bytes)) != 0) {
      job.error = errno;
    }
    return;
  }
  while (job.moved < request.memory.size()) {
    const iovec piece{request.memory.data() + job.moved, request.memory.size() - job.moved};
    const auto offset = static_cast<off_t>(request.offset + job.moved);
    const ssize_t moved = request.op == IoOp::kWrite ? ::pwritev2(job.fd, &piece, 1, offset, 0)
                                                     : ::preadv2(job.fd, &piece, 1, offset, 0);
    if (moved < 0 && errno == EINTR) continue;
    if (moved < 0) {
      job.error = errno;
      return;
    }
    if (moved == 0) {
      // End of file for a read. A write that moves nothing would be repeated forever.
      if (request.op == IoOp::kWrite) job.error = EIO;
      return;
    }
    job.moved += static_cast<uint64_t>(moved);
  }
}

void PwritevDisk::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    queue_changed_.wait(lock, [this] { return stop_ || !queue_.empty(); });
    if (queue_.empty()) return;
    Job job = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    run(job);
    lock.lock();
    done_.push_back(std::move(job));
    done_changed_.notify_one();
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = ::write(event_fd_.get(), &one, sizeof(one));
  }
}

size_t PwritevDisk::reap() {
  CKPT_ASSERT_MSG(!reaping_, "reap() called from a completion");
  uint64_t signals = 0;
  [[maybe_unused]] const ssize_t drained = ::read(event_fd_.get(), &signals, sizeof(signals));
  std::vector<Job> done;
  {
    const std::lock_guard lock(mutex_);
    done.swap(done_);
  }
  in_flight_ -= done.size();
  reaping_ = true;
  for (Job& job : done) {
    Result<uint64_t> outcome = job.moved;
    if (job.error != 0) {
      outcome = request_error(job.request, job.error);
    } else if (job.request.op == IoOp::kSync) {
      outcome = synced(job.request.file);
    }
    note_end(job.request.op, outcome.ok());
    if (job.request.on_done) job.request.on_done(std::move(outcome));
  }
  reaping_ = false;
  return done.size();
}

void PwritevDisk::wait() {
  if (in_flight_ == 0) return;
  std::unique_lock lock(mutex_);
  done_changed_.wait(lock, [this] { return !done_.empty(); });
}

}  // namespace ckptd
