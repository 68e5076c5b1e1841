// Quarantine on its own loop: limits for classes of users whose closes stall.
#include "ckptd/server/quarantine.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <thread>

#include "ckptd/limits.h"
#include "tests/support/lingering_socket.h"

namespace ckptd {
namespace {

using ckpt::base::UniqueFd;
using ckpt::test::LingeringSocket;
using Stalling = std::array<LingeringSocket, limits::kQuarantineThreadsPerUser>;

class QuarantineTest : public testing::Test {
 protected:
  // All threads that the class can have are stalled, and more descriptors wait for them.
  void stall(Quarantine::Class of, Stalling& sockets, size_t waiting) {
    for (LingeringSocket& each : sockets) {
      const int own = each.fd();
      UniqueFd last(::fcntl(own, F_DUPFD_CLOEXEC, 0));
      each.close_copy();
      while (::fcntl(own, F_GETFD) != -1) std::this_thread::yield();
      quarantine->close(of, std::move(last));
    }
    for (size_t i = 0; i < waiting; ++i) {
      quarantine->close(of, UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC)));
      loop.poll();
    }
  }
  void run_until_empty() {
    while (quarantine->held() > 0 && loop.run_one() > 0) {
    }
  }

  asio::io_context loop{1};
  std::unique_ptr<Quarantine> quarantine = Quarantine::start(loop).value();
};

TEST_F(QuarantineTest, SingleClassNeverFillsQuarantine) {
  for (const Quarantine::Class of : {Quarantine::Class{1000}, Quarantine::kStrangers}) {
    Stalling sockets;
    constexpr size_t kMany = 3 * limits::kQuarantineJobsMax;
    stall(of, sockets, kMany);
    EXPECT_FALSE(quarantine->full());
    EXPECT_EQ(quarantine->held(), kMany + sockets.size());
    EXPECT_EQ(quarantine->held_of(of), kMany + sockets.size());
    std::string refused;
    quarantine->receive(of, 0, [&](const ForeignBytes& came) { refused = came.error; });
    EXPECT_THAT(refused, testing::HasSubstr("are still being closed"));
    for (LingeringSocket& each : sockets) each.disconnect();
    run_until_empty();
    EXPECT_EQ(quarantine->held(), 0u);
  }
}

TEST_F(QuarantineTest, ManyClassesTogetherFillQuarantine) {
  std::array<Stalling, limits::kQuarantineClassesAtOnce> sockets;
  for (Quarantine::Class of = 0; of < sockets.size(); ++of) {
    EXPECT_FALSE(quarantine->full());
    EXPECT_EQ(quarantine->fault(), "");
    stall(of, sockets[of], limits::kQuarantineJobsMax / limits::kQuarantineClassesAtOnce);
  }
  EXPECT_TRUE(quarantine->full());
  EXPECT_THAT(quarantine->fault(), testing::HasSubstr("most are of user "));
  for (Stalling& of_user : sockets) {
    for (LingeringSocket& each : of_user) each.disconnect();
  }
  run_until_empty();
  EXPECT_FALSE(quarantine->full());
}

}  // namespace
}  // namespace ckptd
