// What UringDisk does when the kernel takes fewer requests than it was given. That happens when it
// finds no memory for one, and after one that it refuses; here it happens at every submission.
#include <liburing.h>
#include <poll.h>

#include "tests/ckptd/io/disk_fixture.h"

// In the place of liburing's (the linker's --wrap): the same, but the kernel is told of one request
// at a time, and leaves the others in the ring as it does by itself. The fields are liburing's own.
// NOLINTBEGIN(readability-identifier-naming): the linker's name
extern "C" int __wrap_io_uring_submit(io_uring* ring);
extern "C" int __wrap_io_uring_submit(io_uring* ring) {
  // NOLINTEND(readability-identifier-naming)
  io_uring_sq& queue = ring->sq;
  queue.sqe_head = queue.sqe_tail;
  __atomic_store_n(queue.ktail, queue.sqe_tail, __ATOMIC_RELEASE);
  const unsigned waiting = io_uring_sq_ready(ring);
  if (waiting == 0) return 0;
  return io_uring_enter(static_cast<unsigned>(ring->ring_fd), 1, 0, 0, nullptr);
}

namespace ckptd {
namespace {

TEST(PartialSubmit, NothingStaysInTheRingUntilSomethingElseIsAsked) {
  const TemporaryDirectory directory;
  const auto disk = open_engine("uring", directory.path());
  if (disk == nullptr) GTEST_SKIP() << "io_uring is not available here";
  const auto file = disk->open("f", {.create = true, .preallocate_bytes = 1u << 20});
  ASSERT_TRUE(file.ok()) << file.error().message;
  const AlignedBuffer bytes = random_bytes(8 * 4096, 1);
  AlignedBuffer copy(bytes.size());
  size_t done = 0;
  // From a completion, so that all are put into the ring at once.
  disk->submit({.op = IoOp::kSync, .file = *file, .on_done = [&](const Result<uint64_t>&) {
                  for (size_t i = 0; i < 8; ++i) {
                    disk->submit({.op = IoOp::kRead,
                                  .file = *file,
                                  .offset = i * 4096,
                                  .memory = copy.bytes().subspan(i * 4096, 4096),
                                  .on_done = [&](const Result<uint64_t>& result) {
                                    EXPECT_TRUE(result.ok());
                                    ++done;
                                  }});
                  }
                }});
  ASSERT_TRUE(write_blocking(*disk, *file, 0, bytes.bytes()).ok());
  // As the daemon's loop: it reaps when the ring says that there is something to reap.
  while (disk->in_flight() > 0) {
    pollfd ready{.fd = disk->event_fd(), .events = POLLIN, .revents = 0};
    ASSERT_EQ(::poll(&ready, 1, 60'000), 1) << "stalled with " << done << " of 8 done";
    disk->reap();
  }
  EXPECT_EQ(done, 8u);
}

}  // namespace
}  // namespace ckptd
