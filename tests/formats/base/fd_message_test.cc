#include "formats/base/fd_message.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>

namespace ckpt::base {
namespace {

class FdMessageTest : public testing::Test {
 protected:
  void SetUp() override {
    std::array<int, 2> ends{};
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
    here_.reset(ends[0]);
    there_.reset(ends[1]);
    ASSERT_EQ(::pipe2(ends.data(), 0), 0);
    read_end_.reset(ends[0]);
    write_end_.reset(ends[1]);
  }
  Arrived receive(std::vector<UniqueFd>& fds, int flags = 0) {
    return receive_with_fds(there_.get(), buffer_, fds, flags);
  }
  static bool same_file(int a, int b) {
    struct stat of_a {
    }, of_b{};
    return ::fstat(a, &of_a) == 0 && ::fstat(b, &of_b) == 0 && of_a.st_ino == of_b.st_ino;
  }

  UniqueFd here_, there_, read_end_, write_end_;
  std::array<std::byte, 16> buffer_{};
};

TEST_F(FdMessageTest, DescriptorArrivesWithItsBytes) {
  EXPECT_EQ(send_with_fd(here_.get(), as_bytes("ab"), read_end_.get()), 2);
  EXPECT_EQ(send_with_fd(here_.get(), as_bytes("cde"), -1), 3);
  std::vector<UniqueFd> fds;
  EXPECT_EQ(receive(fds).bytes, 2) << "a receive ends before bytes of another sender's message";
  ASSERT_EQ(fds.size(), 1u);
  EXPECT_TRUE(same_file(fds[0].get(), read_end_.get()));
  EXPECT_NE(::fcntl(fds[0].get(), F_GETFD) & FD_CLOEXEC, 0);
  const Arrived rest = receive(fds);
  EXPECT_EQ(rest.bytes, 3);
  EXPECT_FALSE(rest.dropped);
  EXPECT_EQ(fds.size(), 1u);
}

TEST_F(FdMessageTest, DroppedDescriptorsAreReported) {
  const std::array sent{read_end_.get(), read_end_.get(), read_end_.get()};
  EXPECT_EQ(send_with_fds(here_.get(), as_bytes("a"), sent), 1);
  std::vector<UniqueFd> fds;
  const Arrived arrived = receive(fds);
  EXPECT_EQ(arrived.bytes, 1);
  EXPECT_TRUE(arrived.dropped);
  EXPECT_EQ(fds.size(), kFdsPerReceive);
}

TEST_F(FdMessageTest, FailedCallsSetErrno) {
  std::vector<UniqueFd> fds;
  EXPECT_EQ(receive(fds, MSG_DONTWAIT).bytes, -1);
  EXPECT_EQ(errno, EAGAIN);
  there_.reset();
  EXPECT_EQ(send_with_fd(here_.get(), as_bytes("a"), -1), -1);
  EXPECT_EQ(errno, EPIPE) << "and no signal";
}

}  // namespace
}  // namespace ckpt::base
