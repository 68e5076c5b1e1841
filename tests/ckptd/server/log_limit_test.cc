// Log lines that clients trigger are limited, by user and in total, and what is left out is
// counted.
#include "ckptd/observe/log_limit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
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

TEST(LogLimit, OneUserFillsOnlyItsOwnPart) {
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

// A group of one that opens and ends epochs as fast as it can: each time a line or two.
TEST(LogLimit, AClientDoesNotFloodTheLog) {
  const DaemonProcess daemon({"--arena", "64MiB"});
  RawClient client(daemon.socket());
  fb::HelloT hello;
  hello.protocol_version = ckpt::wire::kProtocolVersion;
  hello.kind = fb::SessionKind::Trainer;
  hello.run = "tiny";
  hello.arena_bytes = 1 << 20;
  hello.slab_bytes = 64 << 10;
  client.send(std::move(hello));
  ASSERT_TRUE(client.next());
  fb::RegisterUnitsT units;
  units.request = 1;
  units.units.push_back(std::make_unique<fb::UnitT>());
  units.units[0]->name = "state";
  units.units[0]->layer = -1;
  units.units[0]->expert = -1;
  units.units[0]->bytes = 4096;
  client.send(std::move(units));
  const auto registered = client.next();
  ASSERT_TRUE(registered && registered->body.type == fb::MessageBody::Done);
  constexpr size_t kTimes = 3 * kLogLinesPerUserMax;
  const auto lines = [&daemon] {
    const std::string log = daemon.log();
    return static_cast<size_t>(std::count(log.begin(), log.end(), '\n'));
  };
  for (size_t i = 0; i < kTimes; ++i) {
    fb::JoinGroupT join;
    join.request = 2;
    join.size = 1;
    join.resume = fb::ResumeMode::Continue;
    client.send(std::move(join));
    const auto started = client.next();
    ASSERT_TRUE(started && started->body.type == fb::MessageBody::EpochStarted) << i;
    fb::LeaveGroupT leave;
    leave.request = 3;
    client.send(std::move(leave));
    const auto left = client.next();
    ASSERT_TRUE(left && left->body.type == fb::MessageBody::Done) << i;
  }
  // Some periods may have passed on a slow machine; each has room for so many lines.
  EXPECT_GT(lines(), 10u) << "the first ones are said";
  EXPECT_LT(lines(), kTimes) << daemon.log();
}

}  // namespace
}  // namespace ckptd
