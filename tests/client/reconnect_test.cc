#include "client/src/reconnect.h"

#include <gtest/gtest.h>

namespace ckpt::lib {
namespace {

using std::chrono::milliseconds;

constexpr Clock::time_point kLossTime{std::chrono::hours(1)};

Error no_daemon() { return make_error(ErrorCode::kUnavailable, "connection refused"); }

TEST(Reconnect, BackoffDoublesUpToItsMaximum) {
  Reconnect reconnect;
  EXPECT_TRUE(reconnect.is_due(kLossTime));
  for (const int wait_ms : {10, 20, 40, 80, 100, 100}) {
    reconnect.lost(no_daemon(), kLossTime);
    EXPECT_EQ(reconnect.next_attempt(), kLossTime + milliseconds(wait_ms));
    EXPECT_FALSE(reconnect.is_due(kLossTime + milliseconds(wait_ms - 1)));
    EXPECT_TRUE(reconnect.is_due(kLossTime + milliseconds(wait_ms)));
  }
}

TEST(Reconnect, AttemptCanBePutOff) {
  Reconnect reconnect;
  reconnect.lost(no_daemon(), kLossTime);
  reconnect.not_before(kLossTime + Reconnect::kPauseAfterMisfit);
  EXPECT_EQ(reconnect.next_attempt(), kLossTime + Reconnect::kPauseAfterMisfit);
  reconnect.not_before(kLossTime);
  EXPECT_EQ(reconnect.next_attempt(), kLossTime + Reconnect::kPauseAfterMisfit);
}

TEST(Reconnect, ReadySessionResetsBackoff) {
  Reconnect reconnect;
  reconnect.lost(no_daemon(), kLossTime);
  reconnect.lost(no_daemon(), kLossTime);
  reconnect.ready();
  EXPECT_FALSE(reconnect.why().has_value());
  reconnect.lost(no_daemon(), kLossTime);
  EXPECT_EQ(reconnect.next_attempt(), kLossTime + Reconnect::kBackoffMin);
}

TEST(Reconnect, TimeoutNamesTheCallAndTheLoss) {
  Reconnect reconnect;
  EXPECT_EQ(reconnect.timed_out("cannot save", "/s").message,
            "cannot save: socket /s: ckptd did not answer in time");
  reconnect.lost(no_daemon(), kLossTime);
  EXPECT_EQ(reconnect.timed_out("cannot save", "/s").message, "cannot save: connection refused");
}

TEST(Reconnect, RefusalNeedsNoContextUntilTheNextLoss) {
  Reconnect reconnect;
  reconnect.lost(make_error(ErrorCode::kPermissionDenied, "run r: not yours"), kLossTime);
  reconnect.refused();
  const Error refusal = reconnect.timed_out("cannot save", "/s");
  EXPECT_EQ(refusal.message, "run r: not yours");
  EXPECT_EQ(refusal.code, ErrorCode::kPermissionDenied);
  reconnect.lost(no_daemon(), kLossTime);
  EXPECT_EQ(reconnect.timed_out("cannot save", "/s").message, "cannot save: connection refused");
}

}  // namespace
}  // namespace ckpt::lib
