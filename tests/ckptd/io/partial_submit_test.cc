// UringDisk when the kernel takes fewer requests than were submitted. The kernel does that if it
// has no memory for a request, and after a request that it refuses; here at every submission.
#include <liburing.h>
#include <poll.h>

#include "tests/ckptd/io/disk_fixture.h"

// Replaces liburing's function (the linker's --wrap). The kernel is told of one request at a time,
// and the others stay in the ring, as in the real case. The fields are liburing's own.
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

TEST(PartialSubmit, SubmitsTheRestWithoutFurtherRequest) {
  const ckpt::test::TempFolder folder;
  const auto disk = open_engine("uring", folder.root());
  if (disk == nullptr) GTEST_SKIP() << "io_uring is not available here";
  const auto file = disk->open("f", {.create = true, .preallocate_bytes = 1u << 20});
  ASSERT_TRUE(file.ok()) << file.error().message;
  const AlignedBuffer bytes = random_bytes(8 * 4096, 1);
  AlignedBuffer copy(bytes.size());
  size_t done = 0;
  // Submitted from a completion, so that all requests enter the ring at once.
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
  // Reaps as the daemon's loop does: only when the ring signals completions.
  while (disk->in_flight() > 0) {
    pollfd ready{.fd = disk->event_fd(), .events = POLLIN, .revents = 0};
    ASSERT_EQ(::poll(&ready, 1, 60'000), 1) << "stalled with " << done << " of 8 done";
    disk->reap();
  }
  EXPECT_EQ(done, 8u);
}

}  // namespace
}  // namespace ckptd
