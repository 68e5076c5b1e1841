// Admission of sessions when many want one, and the rate limit of warnings about refusals.
#include "ckptd/server/admission.h"

#include <gmock/gmock.h>

#include "ckptd/limits.h"

namespace ckptd {
namespace {

using ckpt::ErrorCode;
using testing::HasSubstr;

constexpr uid_t kDaemonUser = 900;
constexpr uid_t kUserA = 1000;
constexpr uid_t kUserB = 1001;

class AdmissionTest : public testing::Test {
 protected:
  // Number of sessions admitted out of `wanted`.
  size_t open(uid_t uid, size_t wanted) {
    size_t admitted = 0;
    for (size_t i = 0; i < wanted; ++i) {
      if (admission_.admit(next_++, uid).ok()) ++admitted;
    }
    return admitted;
  }

  Admission admission_{kDaemonUser, {kUserA, kUserB}};
  ckpt::SessionId next_ = 1;
};

TEST_F(AdmissionTest, UserQuotaLeavesRoomForOtherUsers) {
  EXPECT_EQ(open(kUserA, 1000), limits::kSessionsPerUserMax);
  const auto refused = admission_.admit(next_++, kUserA);
  EXPECT_EQ(refused.error().code, ErrorCode::kResourceExhausted);
  EXPECT_THAT(refused.error().message, HasSubstr("there are 192 sessions of user 1000 already"));
  EXPECT_GT(open(kUserB, 10), 0u);
}

TEST_F(AdmissionTest, ReserveIsForRootAndDaemonUser) {
  EXPECT_EQ(open(kUserA, 1000) + open(kUserB, 1000),
            limits::kSessionsMax - limits::kSessionsReserved);
  EXPECT_TRUE(admission_.admit(next_++, 0).ok());
  EXPECT_TRUE(admission_.admit(next_++, kDaemonUser).ok());
  EXPECT_EQ(open(0, 1000), limits::kSessionsReserved - 2);
}

TEST_F(AdmissionTest, RootMayOpenAllSessions) {
  EXPECT_EQ(open(0, 1000), limits::kSessionsMax);
  EXPECT_EQ(admission_.admit(next_++, 0).error().message, "there are 256 sessions already");
}

// Refused users take up no session, though each refusal is answered.
TEST_F(AdmissionTest, RefusedSessionsDoNotCount) {
  EXPECT_EQ(open(4711, 1000), 0u);
  const auto refused = admission_.admit(next_++, 4711);
  EXPECT_EQ(refused.error().code, ErrorCode::kPermissionDenied);
  EXPECT_THAT(refused.error().message, HasSubstr("add 4711 to allow_uids in ckptd's configuration "
                                                 "file and restart ckptd"));
  const ckpt::SessionId first = next_;
  EXPECT_EQ(open(kUserA, 1000), limits::kSessionsPerUserMax);
  admission_.ended(first);
  admission_.ended(first);        // counts only once
  admission_.ended(first + 500);  // a session that was refused
  EXPECT_EQ(open(kUserA, 1000), 1u);
}

TEST(RepeatedWarning, LimitsWarningsPerPeriodAndCountsTheRest) {
  RepeatedWarning warning;
  auto now = RepeatedWarning::Time() + std::chrono::hours(1);
  const auto say = [&](size_t times) {
    size_t said = 0;
    for (size_t i = 0; i < times; ++i) said += warning.say(now) ? 1 : 0;
    return said;
  };
  EXPECT_EQ(say(100), limits::kWarningsPerPeriodMax);
  EXPECT_EQ(warning.left_out(now), 0u) << "not over yet";
  now += limits::kWarningsPeriod;
  EXPECT_EQ(say(1), 0u) << "not before it is said how many there were";
  EXPECT_EQ(warning.left_out(now), 100 - limits::kWarningsPerPeriodMax + 1);
  EXPECT_EQ(warning.left_out(now), 0u);
  EXPECT_EQ(say(100), limits::kWarningsPerPeriodMax);
}

}  // namespace
}  // namespace ckptd
