#include "ckptd/io/uring_disk.h"

#include <fcntl.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "ckptd/io/engines.h"
#include "ckptd/limits.h"

namespace ckptd {

namespace {

// Upper bound of one request: the kernel's own bound is just below 2 GiB.
constexpr uint64_t kRequestBytesMax = 1ull << 30;

}  // namespace

Result<std::unique_ptr<Disk>> open_uring_disk(const std::string& root) {
  auto disk = std::make_unique<UringDisk>(root);
  CKPT_TRY(disk->open_root());
  CKPT_TRY(disk->init());
  return std::unique_ptr<Disk>(std::move(disk));
}

UringDisk::~UringDisk() {
  CKPT_ASSERT_MSG(in_flight() == 0, "a disk was closed with I/O in flight");
  if (ring_open_) io_uring_queue_exit(&ring_);
}

Status UringDisk::init() {
  const int result = io_uring_queue_init(limits::kRingEntries, &ring_, 0);
  if (result < 0) {
    return ckpt::make_error(ckpt::ErrorCode::kUnavailable, "io_uring is not available: {}",
                            std::strerror(-result));
  }
  ring_open_ = true;
  event_fd_.reset(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!event_fd_.valid()) return errno_error(errno, "eventfd");
  const int registered = io_uring_register_eventfd(&ring_, event_fd_.get());
  if (registered < 0) {
    return ckpt::make_error(ckpt::ErrorCode::kUnavailable, "io_uring has no eventfd: {}",
                            std::strerror(-registered));
  }
  buffers_.init(&ring_);
  return {};
}

Result<BufferId> UringDisk::register_buffer(MutableByteView memory) { return buffers_.add(memory); }

void UringDisk::unregister_buffer(BufferId buffer) { buffers_.remove(buffer); }

void UringDisk::submit(IoRequest request) {
  size_t index = operations_.size();
  if (free_operations_.empty()) {
    operations_.emplace_back();
  } else {
    index = free_operations_.back();
    free_operations_.pop_back();
  }
  operations_[index] = Operation{.request = std::move(request), .busy = true};
  queued_.push_back(index);
  // Inside callbacks the ring is filled once, after the last callback.
  if (!reaping_) fill_ring();
}

void UringDisk::fill_ring() {
  // The completion queue has twice as many entries as the ring: it never overflows.
  while (!queued_.empty() && in_kernel_ < limits::kRingEntries) {
    io_uring_sqe* sqe = io_uring_get_sqe(&ring_);
    if (sqe == nullptr) break;
    prepare(sqe, queued_.front());
    queued_.pop_front();
    ++in_kernel_;
  }
  // One call may submit only some of them: it stops at an entry without memory, or one that the
  // kernel refuses at once. Repeat until all are submitted: no completion comes for entries left in
  // the ring, so nothing else would submit them.
  while (io_uring_sq_ready(&ring_) > 0) {
    const int result = io_uring_submit(&ring_);
    CKPT_ASSERT_MSG(result >= 0 || result == -EINTR || result == -EAGAIN, "io_uring_submit failed");
  }
}

void UringDisk::prepare(io_uring_sqe* sqe, size_t index) {
  const Operation& operation = operations_[index];
  const IoRequest& request = operation.request;
  const int fd = descriptor(request.file);
  if (request.op == IoOp::kSync) {
    io_uring_prep_fsync(sqe, fd, IORING_FSYNC_DATASYNC);
  } else if (request.op == IoOp::kAllocate || request.op == IoOp::kPunch) {
    io_uring_prep_fallocate(sqe, fd, fallocate_mode(request.op), static_cast<off_t>(request.offset),
                            static_cast<off_t>(request.bytes));
  } else {
    std::byte* memory = request.memory.data() + operation.done;
    uint64_t bytes = std::min(request.memory.size() - operation.done, kRequestBytesMax);
    const uint64_t offset = request.offset + operation.done;
    const bool write = request.op == IoOp::kWrite;
    if (request.buffer.has_value()) {
      const FixedBuffers::Place place = buffers_.find(*request.buffer, memory);
      // Only up to the end of the slot; the rest follows as after a short write.
      const auto length = static_cast<unsigned>(std::min(bytes, place.bytes));
      if (write) {
        io_uring_prep_write_fixed(sqe, fd, memory, length, offset, place.slot);
      } else {
        io_uring_prep_read_fixed(sqe, fd, memory, length, offset, place.slot);
      }
    } else if (write) {
      io_uring_prep_write(sqe, fd, memory, static_cast<unsigned>(bytes), offset);
    } else {
      io_uring_prep_read(sqe, fd, memory, static_cast<unsigned>(bytes), offset);
    }
  }
  io_uring_sqe_set_data64(sqe, index);
}

std::optional<Result<uint64_t>> UringDisk::settle(Operation& operation, int result) {
  const IoRequest& request = operation.request;
  if (result == -EINTR || result == -EAGAIN) return std::nullopt;
  if (result < 0) return request_error(request, -result);
  if (request.op == IoOp::kSync) return synced(request.file);
  if (request.op != IoOp::kRead && request.op != IoOp::kWrite) return Result<uint64_t>(0);
  operation.done += static_cast<uint64_t>(result);
  if (operation.done == request.memory.size()) return Result<uint64_t>(operation.done);
  if (result == 0) {
    // End of file for a read. A write that moves nothing would be repeated forever.
    if (request.op == IoOp::kRead) return Result<uint64_t>(operation.done);
    return request_error(request, EIO);
  }
  return std::nullopt;
}

size_t UringDisk::reap() {
  CKPT_ASSERT_MSG(!reaping_, "reap() called from a completion");
  uint64_t signals = 0;
  [[maybe_unused]] const ssize_t drained = ::read(event_fd_.get(), &signals, sizeof(signals));

  // 1. collect, 2. free the completion queue, 3. run, 4. submit requests queued by callbacks.
  std::vector<Finished> finished;
  std::array<io_uring_cqe*, 64> completions{};
  while (const unsigned count = io_uring_peek_batch_cqe(&ring_, completions.data(), 64)) {
    for (unsigned i = 0; i < count; ++i) {
      const auto index = static_cast<size_t>(io_uring_cqe_get_data64(completions[i]));
      CKPT_ASSERT(index < operations_.size() && operations_[index].busy);
      --in_kernel_;
      Operation& operation = operations_[index];
      auto outcome = settle(operation, completions[i]->res);
      if (!outcome.has_value()) {
        queued_.push_front(index);
        continue;
      }
      note_end(operation.request.op, outcome->ok());
      finished.push_back({std::move(operation.request.on_done), *std::move(outcome)});
      operation = Operation{};
      free_operations_.push_back(index);
    }
    io_uring_cq_advance(&ring_, count);
  }
  reaping_ = true;
  for (Finished& each : finished) {
    if (each.on_done) each.on_done(std::move(each.result));
  }
  reaping_ = false;
  fill_ring();
  return finished.size();
}

void UringDisk::wait() {
  if (in_kernel_ == 0) return;
  io_uring_cqe* completion = nullptr;
  int result = 0;
  do {
    result = io_uring_wait_cqe(&ring_, &completion);
  } while (result == -EINTR);
  CKPT_ASSERT_MSG(result == 0, "io_uring_wait_cqe failed");
}

}  // namespace ckptd
