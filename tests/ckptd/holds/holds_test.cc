// Holds one by one, and random ones against a naive model.
#include "ckptd/holds/holds.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace ckptd {
namespace {

using std::chrono::seconds;

Hold hold_of(ckpt::SessionId session, uid_t uid, seconds now = seconds(0)) {
  return {.holder = {.session = session, .uid = uid, .pid = 17, .client = "ckptctl"},
          .run = 1,
          .view = {1, 10},
          .progress_at = now};
}

// Regression: a stall during a rebuild ended all holds before their renewals were read.
TEST(Holds, StalledLoopEndsNoHold) {
  Holds holds({.lease = seconds(60), .stall = seconds(10)});
  ASSERT_TRUE(holds.take(hold_of(1, 5)).ok());
  EXPECT_TRUE(holds.end_overdue(seconds(30)).empty());
  EXPECT_TRUE(holds.end_overdue(seconds(330)).empty()) << "10 s of these 300 s count";
  EXPECT_TRUE(holds.end_overdue(seconds(339)).empty());
  EXPECT_TRUE(holds.end_overdue(seconds(348)).empty());
  EXPECT_EQ(holds.end_overdue(seconds(351)).size(), 1u) << "30 s, 10 s and 20 s";
}

TEST(Holds, ProgressReadAfterStallExtendsNoLease) {
  Holds holds({.lease = seconds(60), .stall = seconds(10)});
  ASSERT_TRUE(holds.take(hold_of(1, 5)).ok());
  EXPECT_TRUE(holds.end_overdue(seconds(1)).empty());
  holds.progress(1, seconds(2));  // read late, with the time of before the stall
  EXPECT_TRUE(holds.end_overdue(seconds(301)).empty());
  for (int now = 302; now <= 350; ++now)
    ASSERT_TRUE(holds.end_overdue(seconds(now)).empty()) << now;
  for (int now = 351; now < 360; ++now) (void)holds.end_overdue(seconds(now));
  EXPECT_TRUE(holds.all().empty());
}

TEST(Holds, HoldEndsAfterLeaseWithoutProgress) {
  Holds holds({.lease = seconds(60), .stall = seconds(100)});
  const HoldId first = holds.take(hold_of(1, 5)).value();
  const HoldId second = holds.take(hold_of(2, 5)).value();
  EXPECT_TRUE(holds.end_overdue(seconds(59)).empty());
  holds.progress(1, seconds(59));
  const auto ended = holds.end_overdue(seconds(60));
  ASSERT_EQ(ended.size(), 1u);
  EXPECT_EQ(ended[0].id, second);
  EXPECT_FALSE(holds.renew(2, second, seconds(60)));
  EXPECT_TRUE(holds.renew(1, first, seconds(100)));
  EXPECT_TRUE(holds.end_overdue(seconds(159)).empty());
  EXPECT_EQ(holds.end_overdue(seconds(160)).size(), 1u);
}

TEST(Holds, HoldOfJobNeverExpires) {
  Holds holds;
  Hold job = hold_of(1, 5);
  job.of_job = true;
  const HoldId id = holds.take(job).value();
  EXPECT_TRUE(holds.end_overdue(seconds(1'000'000)).empty());
  EXPECT_TRUE(holds.release(1, id));
  EXPECT_FALSE(holds.release(1, id));
}

TEST(Holds, QuotasBoundSessionUserAndTotal) {
  Holds holds({.per_session = 2, .per_user = 3, .all = 5, .reserved = 1});
  const auto error = [&](Hold hold) {
    const auto id = holds.take(std::move(hold));
    return id.ok() ? std::string() : id.error().message;
  };
  EXPECT_EQ(error(hold_of(1, 5)), "");
  EXPECT_EQ(error(hold_of(1, 5)), "");
  EXPECT_NE(error(hold_of(1, 5)).find("this session holds 2"), std::string::npos);
  EXPECT_EQ(error(hold_of(2, 5)), "");
  EXPECT_NE(error(hold_of(2, 5)).find("user 5 holds 3"), std::string::npos);
  EXPECT_EQ(error(hold_of(3, 6)), "");
  EXPECT_NE(error(hold_of(3, 6)).find("4 views are held already"), std::string::npos);
  Hold root = hold_of(4, 0);
  root.holder.privileged = true;
  EXPECT_EQ(error(root), "") << "the last ones are root's";
  EXPECT_NE(error(root).find("5 views are held already"), std::string::npos);
  EXPECT_EQ(holds.end_session(1).size(), 2u);
  EXPECT_EQ(error(hold_of(2, 5)), "") << "there is room again";
}

TEST(Holds, OnlyTheOwnerSessionReleasesOrRenews) {
  Holds holds;
  const HoldId id = holds.take(hold_of(1, 5)).value();
  EXPECT_FALSE(holds.release(2, id));
  EXPECT_FALSE(holds.renew(2, id, seconds(50)));
  EXPECT_EQ(holds.end_overdue(limits::kHoldLease).size(), 1u)
      << "the stranger's word did not count";
}

// Does the same as Holds, one hold after the other.
class Model {
 public:
  bool take(HoldId id, const Hold& hold, bool taken) {
    const bool room =
        count([&](const Hold& one) { return one.holder.session == hold.holder.session; }) < 3 &&
        (hold.holder.privileged ||
         count([&](const Hold& one) { return one.holder.uid == hold.holder.uid; }) < 5) &&
        holds.size() < (hold.holder.privileged ? 12u : 10u);
    if (taken) holds[id] = hold;
    return room;
  }
  bool release(ckpt::SessionId session, HoldId id) {
    const bool own = holds.contains(id) && holds[id].holder.session == session;
    if (own) holds.erase(id);
    return own;
  }
  void progress(ckpt::SessionId session, seconds now) {
    for (auto& [id, hold] : holds) {
      if (hold.holder.session == session) hold.progress_at = now;
    }
  }
  size_t end_overdue(seconds now) {
    return std::erase_if(
        holds, [&](const auto& entry) { return now - entry.second.progress_at >= seconds(10); });
  }
  size_t end_session(ckpt::SessionId session) {
    return std::erase_if(holds,
                         [&](const auto& entry) { return entry.second.holder.session == session; });
  }
  size_t count(const std::function<bool(const Hold&)>& which) const {
    return static_cast<size_t>(
        std::ranges::count_if(holds, [&](const auto& entry) { return which(entry.second); }));
  }
  std::map<HoldId, Hold> holds;
};

TEST(HoldsProperty, EqualsTheNaiveModel) {
  const auto base = static_cast<uint64_t>(testing::UnitTest::GetInstance()->random_seed());
  for (uint64_t seed = base * 100; seed < base * 100 + 50; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed);
    const auto draw = [&](uint64_t bound) { return random() % bound; };
    Holds holds({.per_session = 3, .per_user = 5, .all = 12, .reserved = 2, .lease = seconds(10)});
    Model model;
    seconds now{0};
    for (int event = 0; event < 300; ++event) {
      const ckpt::SessionId session = 1 + draw(6);
      const HoldId some = 1 + draw(40);
      const uint64_t kind = draw(16);
      if (kind < 6) {
        Hold hold = hold_of(session, static_cast<uid_t>(session % 3), now);
        hold.holder.privileged = hold.holder.uid == 0;
        hold.run = static_cast<ckpt::RunId>(1 + draw(2));
        const auto id = holds.take(hold);
        ASSERT_EQ(id.ok(), model.take(id.ok() ? *id : 0, hold, id.ok()));
      } else if (kind < 9) {
        ASSERT_EQ(holds.release(session, some), model.release(session, some));
      } else if (kind < 12) {
        holds.progress(session, now);
        model.progress(session, now);
      } else if (kind < 15) {
        now += seconds(draw(4));
        ASSERT_EQ(holds.end_overdue(now).size(), model.end_overdue(now));
      } else {
        ASSERT_EQ(holds.end_session(session).size(), model.end_session(session));
      }
      ASSERT_EQ(holds.all().size(), model.holds.size());
      ASSERT_EQ(holds.of_run(1).size(), model.count([](const Hold& one) { return one.run == 1; }));
    }
  }
}

}  // namespace
}  // namespace ckptd
