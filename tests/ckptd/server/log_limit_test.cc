// Log lines that clients trigger are limited, per user and in total, and suppressed lines are
// counted.
#include "ckptd/observe/log_limit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "tests/support/daemon_process.h"
#include "tests/support/raw_client.h"

namespace ckptd {
namespace {

using ckpt::test::DaemonProcess;
using ckpt::test::RawClient;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
namespace fb = ckpt::fb;

const LogLimit::Time kStart = LogLimit::Time() + std::chrono::hours(1);

TEST(LogLimit, UserFillsOnlyItsOwnQuota) {
  LogLimit limit;
  size_t admitted = 0;
  for (size_t i = 0; i < kLogLinesPerUserMax + 7; ++i) admitted += limit.admit(1000, kStart);
  EXPECT_EQ(admitted, kLogLinesPerUserMax);
  EXPECT_TRUE(limit.admit(1001, kStart));
  EXPECT_TRUE(limit.admit(std::nullopt, kStart));
  EXPECT_THAT(limit.left_out(kStart), IsEmpty()) << "the period is not over";
  const auto over = kStart + kLogPeriod;
  EXPECT_THAT(limit.left_out(over),
              ElementsAre(HasSubstr("7 log lines that clients of user 1000 triggered")));
  EXPECT_THAT(limit.left_out(over), IsEmpty()) << "said once";
  EXPECT_TRUE(limit.admit(1000, over));
}

TEST(LogLimit, ManyUsersTogetherLeaveRoomForTheDaemon) {
  LogLimit limit;
  size_t admitted = 0;
  for (uid_t user = 0; user < 100; ++user) {
    for (size_t i = 0; i < kLogLinesPerUserMax; ++i) admitted += limit.admit(user, kStart);
  }
  EXPECT_EQ(admitted, kLogLinesOfClientsMax);
  EXPECT_TRUE(limit.admit(std::nullopt, kStart));
}

TEST(LogLimit, ReportNamesBoundedNumberOfUsers) {
  LogLimit limit;
  for (uid_t user = 0; user < 10'000; ++user) {
    for (size_t i = 0; i < 3; ++i) (void)limit.admit(user, kStart);
  }
  const auto sentences = limit.left_out(kStart + kLogPeriod);
  ASSERT_EQ(sentences.size(), kLogUsersNamedMax + 1);
  EXPECT_THAT(sentences.front(), HasSubstr("at most 200 for one user and 1000 for all users"));
  EXPECT_THAT(sentences.back(), HasSubstr("other users triggered were left out"));
}

TEST(LogLimit, UsersWhoMayNotConnectAreNotNamed) {
  LogLimit limit;
  for (size_t i = 0; i <= kLogLinesPerUserMax; ++i) (void)limit.admit(kUsersNotAllowed, kStart);
  EXPECT_THAT(limit.left_out(kStart + kLogPeriod),
              ElementsAre(HasSubstr("1 log lines that clients of users who may not connect")));
}

// Trainers that say they bring an arena back, and bring none: a warning each time.
TEST(LogLimit, AClientDoesNotFloodTheLog) {
  const DaemonProcess daemon({"--arena", "64MiB"});
  const auto begin = std::chrono::steady_clock::now();
  const auto lines_max = [begin] {
    const auto time = std::chrono::steady_clock::now() - begin;
    return (static_cast<size_t>(time / kLogPeriod) + 2) * kLogLinesPerUserMax;
  };
  // More than may be logged, whatever time that takes.
  for (size_t i = 0; i < lines_max() + kLogLinesPerUserMax; ++i) {
    if (i > 20 * kLogLinesPerUserMax) GTEST_SKIP() << "too slow to reach the limit";
    RawClient client(daemon.socket());
    fb::HelloT hello;
    hello.protocol_version = ckpt::wire::kProtocolVersion;
    hello.kind = fb::SessionKind::Trainer;
    hello.run = "tiny";
    hello.arena_bytes = 1 << 20;
    hello.slab_bytes = 64 << 10;
    hello.readopt = true;
    client.send(std::move(hello));
    ASSERT_TRUE(client.next()) << i;
  }
  const std::string log = daemon.log();
  const std::string line = "its arena was not taken back";
  size_t lines = 0;
  for (size_t at = 0; (at = log.find(line, at)) != std::string::npos; ++at) ++lines;
  EXPECT_GE(lines, 1u) << "the first ones are logged";
  EXPECT_LE(lines, lines_max());
}

}  // namespace
}  // namespace ckptd
