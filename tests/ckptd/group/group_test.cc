#include "ckptd/group/group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "ckptd/limits.h"
#include "tests/ckptd/group/actions.h"

namespace ckptd {
namespace {

using ckpt::ErrorCode;
using ckpt::Rank;
using ckpt::SessionId;
using testing::ElementsAre;
using testing::HasSubstr;

JoinRequest request(Rank rank, uint32_t size, ResumeMode resume = ResumeMode::kStart) {
  return {.session = 100 + rank, .request = rank, .rank = rank, .size = size, .resume = resume};
}

class GroupTest : public testing::Test {
 protected:
  Groups groups;

  bool trained() const { return groups.trained_runs() == std::vector<ckpt::RunId>{kRun}; }
  // Joins all ranks and opens the epoch.
  ckpt::Epoch open(uint32_t size, ResumeMode resume = ResumeMode::kStart) {
    ckpt::Epoch epoch = 0;
    for (Rank rank = 0; rank < size; ++rank) {
      const auto opens = all<Groups::OpenEpoch>(groups.join(kRun, request(rank, size, resume)));
      EXPECT_EQ(opens.size(), rank + 1 == size ? 1u : 0u);
      if (!opens.empty()) epoch = opens[0].epoch;
    }
    EXPECT_TRUE(groups.opened(kRun, epoch, 1, {}).empty());
    return epoch;
  }
};

TEST_F(GroupTest, OpensWhenEveryRankIsThere) {
  EXPECT_TRUE(groups.join(kRun, request(2, 3)).empty());
  EXPECT_TRUE(groups.join(kRun, request(0, 3)).empty());
  const auto opens = all<Groups::OpenEpoch>(groups.join(kRun, request(1, 3)));
  ASSERT_EQ(opens.size(), 1u);
  EXPECT_EQ(opens[0].epoch, 1u);
  for (Rank rank = 0; rank < 3; ++rank) EXPECT_EQ(opens[0].members[rank].rank, rank);
  EXPECT_FALSE(groups.member(100).has_value()) << "not before the record is durable";
  groups.opened(kRun, 1, 4, {});
  EXPECT_EQ(groups.member(102)->rank, 2u);
  EXPECT_EQ(groups.member(102)->lineage, 4u);
  EXPECT_THAT(groups.members(kRun, 1), ElementsAre(100, 101, 102));
}

TEST_F(GroupTest, RefusesRanksOutsideTheGroup) {
  for (const JoinRequest& bad :
       {request(3, 3), request(0, 0), request(0, limits::kGroupSizeMax + 1)}) {
    EXPECT_EQ(all<Groups::Refuse>(groups.join(kRun, bad)).size(), 1u);
  }
}

TEST_F(GroupTest, RefusesRanksWithDifferentResumePoints) {
  groups.join(kRun, request(0, 2, ResumeMode::kLatest));
  const auto refused = all<Groups::Refuse>(groups.join(kRun, request(1, 2, ResumeMode::kStart)));
  ASSERT_EQ(refused.size(), 2u) << "the one that waits is told too";
  EXPECT_THAT(refused[0].error.message, HasSubstr("rank 1 asks for size 2, resume start"));
  EXPECT_THAT(refused[0].error.message, HasSubstr("rank 0 for size 2, resume latest"));
  open(2);
}

TEST_F(GroupTest, ContinueAdoptsResumePointOfOtherRank) {
  groups.join(kRun, request(0, 2, ResumeMode::kContinue));
  JoinRequest at = request(1, 2, ResumeMode::kAtStep);
  at.resume_step = 40;
  const auto opens = all<Groups::OpenEpoch>(groups.join(kRun, at));
  ASSERT_EQ(opens.size(), 1u);
  EXPECT_EQ(opens[0].resume.resume, ResumeMode::kAtStep);
  EXPECT_EQ(opens[0].resume.resume_step, 40u);
}

TEST_F(GroupTest, LostMemberEndsEpochAndNextOneOpens) {
  open(3);
  const auto actions = groups.lost(101, "its process died");
  const auto ended = all<Groups::EndEpoch>(actions);
  ASSERT_EQ(ended.size(), 1u);
  EXPECT_THAT(ended[0].lost, ElementsAre(1));
  EXPECT_THAT(ended[0].remaining, ElementsAre(100, 102));
  EXPECT_THAT(ended[0].reason, HasSubstr("its process died"));
  ASSERT_EQ(all<Groups::MemberGone>(actions).size(), 1u);
  EXPECT_FALSE(groups.member(100)->active);
  EXPECT_EQ(groups.member(100)->epoch, 1u) << "it may still finish its seals";
  EXPECT_FALSE(groups.member(101).has_value());
  EXPECT_TRUE(all<Groups::EndEpoch>(groups.lost(102, "it too")).empty()) << "ended once";
  EXPECT_EQ(open(3, ResumeMode::kContinue), 2u);
}

TEST_F(GroupTest, ReplacementWaitsUntilHolderIsLost) {
  open(2);
  JoinRequest replacement = request(1, 2, ResumeMode::kContinue);
  replacement.session = 201;
  EXPECT_TRUE(groups.join(kRun, replacement).empty());
  EXPECT_EQ(all<Groups::EndEpoch>(groups.lost(101, "died")).size(), 1u);
  const auto opens =
      all<Groups::OpenEpoch>(groups.join(kRun, request(0, 2, ResumeMode::kContinue)));
  ASSERT_EQ(opens.size(), 1u);
  EXPECT_EQ(opens[0].members[1].session, 201u);
}

TEST_F(GroupTest, MemberAskingForNextEpochEndsThisOne) {
  open(2);
  const auto actions = groups.join(kRun, request(0, 2, ResumeMode::kContinue));
  const auto ended = all<Groups::EndEpoch>(actions);
  ASSERT_EQ(ended.size(), 1u);
  EXPECT_THAT(ended[0].remaining, ElementsAre(101));
  EXPECT_EQ(all<Groups::MemberGone>(actions).size(), 1u);
}

TEST_F(GroupTest, LeavingMemberEndsNoEpoch) {
  open(2);
  EXPECT_TRUE(all<Groups::EndEpoch>(groups.leave(100)).empty());
  EXPECT_TRUE(groups.member(101)->active);
  EXPECT_FALSE(groups.member(100)->active);
  EXPECT_TRUE(all<Groups::EndEpoch>(groups.lost(100, "closed")).empty());
  JoinRequest next = request(0, 2, ResumeMode::kContinue);
  next.session = 300;
  EXPECT_TRUE(groups.join(kRun, next).empty()) << "the others finish first";
  groups.leave(101);
  next.rank = 1;
  next.session = 301;
  EXPECT_EQ(all<Groups::OpenEpoch>(groups.join(kRun, next)).size(), 1u);
}

TEST_F(GroupTest, OnlyMembersThatDidNotLeaveAreLost) {
  EXPECT_FALSE(groups.would_lose(100));
  open(3);
  EXPECT_TRUE(groups.would_lose(100));
  groups.leave(100);
  EXPECT_FALSE(groups.would_lose(100)) << "it left in good order";
  groups.lost(101, "died");
  EXPECT_FALSE(groups.would_lose(101)) << "once is enough";
  EXPECT_TRUE(groups.would_lose(102)) << "it has not asked for the next epoch yet";
}

TEST_F(GroupTest, RunIsTrainedWhileGroupHasSession) {
  EXPECT_FALSE(trained());
  groups.join(kRun, request(0, 2));
  EXPECT_TRUE(trained()) << "it waits for the others";
  groups.join(kRun, request(1, 2));
  groups.opened(kRun, 1, 1, {});
  groups.leave(100);
  EXPECT_TRUE(trained());
  groups.leave(101);
  EXPECT_FALSE(trained());
}

TEST_F(GroupTest, RecoveredRunIsUntrainedUntilMemberRejoins) {
  groups.recovered(kRun, 6, 2, 3);
  EXPECT_TRUE(groups.in_use(kRun));
  EXPECT_FALSE(trained()) << "the job may be over";
  ASSERT_TRUE(groups.rejoin(kRun, 100, 0, 6).ok());
  EXPECT_TRUE(trained());
  groups.leave(100);
  EXPECT_FALSE(trained()) << "the other member may still come back";
}

TEST_F(GroupTest, MemberLostDuringOpenEndsTheEpoch) {
  groups.join(kRun, request(0, 2));
  groups.join(kRun, request(1, 2));
  EXPECT_TRUE(groups.lost(101, "died").empty());
  const auto ended = all<Groups::EndEpoch>(groups.opened(kRun, 1, 1, {}));
  ASSERT_EQ(ended.size(), 1u);
  EXPECT_THAT(ended[0].lost, ElementsAre(1));
  EXPECT_THAT(ended[0].remaining, ElementsAre(100));
}

TEST_F(GroupTest, FailedRecordRefusesAllMembers) {
  groups.join(kRun, request(0, 2));
  groups.join(kRun, request(1, 2));
  const auto refused = all<Groups::Refuse>(
      groups.opened(kRun, 1, 0, ckpt::Error{ErrorCode::kFailedPrecondition, "has commits"}));
  EXPECT_EQ(refused.size(), 2u);
  EXPECT_EQ(open(2), 1u) << "the number was not used up";
}

TEST_F(GroupTest, MembersRejoinAfterADaemonRestart) {
  groups.recovered(kRun, 6, 2, 3);
  EXPECT_EQ(groups.rejoin(kRun, 100, 0, 5).error().code, ErrorCode::kAborted);
  EXPECT_EQ(groups.rejoin(kRun, 100, 0, 6).value(), 3u);
  EXPECT_EQ(groups.rejoin(kRun, 101, 0, 6).error().code, ErrorCode::kAborted) << "held";
  EXPECT_EQ(groups.rejoin(kRun, 101, 2, 6).error().code, ErrorCode::kAborted) << "no such rank";
  EXPECT_EQ(groups.rejoin(kRun, 101, 1, 6).value(), 3u);
  EXPECT_TRUE(groups.rejoin_deadline_passed().empty());
  EXPECT_TRUE(groups.member(101)->active);
}

TEST_F(GroupTest, MembersThatDoNotRejoinAreLost) {
  groups.recovered(kRun, 6, 3, 3);
  ASSERT_TRUE(groups.rejoin(kRun, 100, 0, 6).ok());
  const auto ended = all<Groups::EndEpoch>(groups.rejoin_deadline_passed());
  ASSERT_EQ(ended.size(), 1u);
  EXPECT_THAT(ended[0].lost, ElementsAre(1, 2));
  EXPECT_THAT(ended[0].remaining, ElementsAre(100));
  EXPECT_EQ(groups.rejoin(kRun, 101, 1, 6).error().code, ErrorCode::kAborted);
}

TEST_F(GroupTest, ReplacementAfterRestartEndsEpochAtOnce) {
  groups.recovered(kRun, 6, 2, 3);
  ASSERT_TRUE(groups.rejoin(kRun, 100, 0, 6).ok());
  const auto ended = all<Groups::EndEpoch>(groups.join(kRun, request(1, 2, ResumeMode::kContinue)));
  ASSERT_EQ(ended.size(), 1u);
  EXPECT_THAT(ended[0].lost, ElementsAre(1));
  const auto opens =
      all<Groups::OpenEpoch>(groups.join(kRun, request(0, 2, ResumeMode::kContinue)));
  ASSERT_EQ(opens.size(), 1u);
  EXPECT_EQ(opens[0].epoch, 7u);
}

TEST_F(GroupTest, RendezvousGetWaitsForItsKey) {
  const ckpt::Epoch epoch = open(2);
  EXPECT_TRUE(groups.kv_get(100, 9, epoch, "addr/1").value().empty());
  const auto answers = all<Groups::KvAnswer>(groups.kv_set(101, epoch, "addr/1", {1, 2}).value());
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_EQ(answers[0].session, 100u);
  EXPECT_EQ(answers[0].request, 9u);
  EXPECT_THAT(answers[0].value, ElementsAre(1, 2));
  EXPECT_EQ(all<Groups::KvAnswer>(groups.kv_get(101, 1, epoch, "addr/1").value()).size(), 1u);
  EXPECT_FALSE(groups.kv_set(101, epoch + 1, "addr/1", {}).ok());
  EXPECT_FALSE(groups.kv_get(999, 1, epoch, "addr/1").ok());
}

TEST_F(GroupTest, RendezvousIsBoundedAndEndsWithTheEpoch) {
  const ckpt::Epoch epoch = open(2);
  EXPECT_FALSE(
      groups.kv_set(100, epoch, "x", std::vector<uint8_t>(limits::kKvValueBytesMax + 1)).ok());
  for (size_t i = 0; i < limits::kPendingRequestsPerSessionMax; ++i) {
    ASSERT_TRUE(groups.kv_get(100, i, epoch, fmt::format("key{}", i)).ok());
  }
  EXPECT_FALSE(groups.kv_get(100, 0, epoch, "one more").ok());
  const auto actions = groups.lost(101, "died");
  EXPECT_EQ(all<Groups::Refuse>(actions).size(), limits::kPendingRequestsPerSessionMax);
  const auto first = [&]<typename T>(T*) {
    return std::find_if(actions.begin(), actions.end(),
                        [](const Groups::Action& one) { return std::holds_alternative<T>(one); });
  };
  EXPECT_LT(first(static_cast<Groups::EndEpoch*>(nullptr)),
            first(static_cast<Groups::Refuse*>(nullptr)))
      << "whose call is aborted must know already that the epoch has ended";
  EXPECT_FALSE(groups.kv_set(100, epoch, "x", {}).ok());
}

// Random joins, losses, leaves and answers: epochs only grow, an epoch is opened with every rank
// once, and each of its members is told of its end at most once.
TEST(GroupProperty, EpochsHoldInvariantsInRandomHistories) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    std::mt19937_64 random(seed);
    Groups groups;
    SessionId next_session = 1;
    std::vector<SessionId> alive;
    ckpt::Epoch last = 0;
    std::optional<ckpt::Epoch> opening;
    std::map<ckpt::Epoch, size_t> ends;
    const auto execute = [&](const Groups::Actions& actions) {
      for (const auto& open : all<Groups::OpenEpoch>(actions)) {
        ASSERT_EQ(open.epoch, last + 1);
        ASSERT_FALSE(opening.has_value());
        ASSERT_EQ(open.members.size(), 3u);
        opening = open.epoch;
      }
      for (const auto& end : all<Groups::EndEpoch>(actions)) ASSERT_EQ(++ends[end.epoch], 1u);
    };
    for (int event = 0; event < 200; ++event) {
      const auto pick = [&](size_t count) { return random() % count; };
      if (alive.empty() || pick(10) < 5) {
        const bool fresh = alive.empty() || pick(2) == 0;
        if (fresh) alive.push_back(next_session++);
        JoinRequest join = request(static_cast<Rank>(pick(3)), 3, ResumeMode::kContinue);
        join.session = fresh ? alive.back() : alive[pick(alive.size())];
        execute(groups.join(kRun, join));
      } else if (opening && pick(2) == 0) {
        const bool works = pick(4) != 0;
        if (works) last = *opening;
        const ckpt::Epoch epoch = *std::exchange(opening, std::nullopt);
        execute(
            groups.opened(kRun, epoch, 1,
                          works ? Status() : Status(ckpt::Error{ErrorCode::kIo, "drawn by lot"})));
      } else {
        const size_t victim = pick(alive.size());
        if (pick(3) == 0) {
          execute(groups.leave(alive[victim]));
        } else {
          execute(groups.lost(alive[victim], "drawn by lot"));
          alive.erase(alive.begin() + static_cast<ptrdiff_t>(victim));
        }
      }
      if (testing::Test::HasFatalFailure()) return;
      ASSERT_EQ(groups.last_epoch(kRun), last);
    }
  }
}

TEST_F(GroupTest, KeysOfAnEpochHaveByteBudget) {
  const ckpt::Epoch epoch = open(1);
  const std::vector<uint8_t> value(limits::kKvValueBytesMax);
  size_t set = 0;
  ckpt::Status refused;
  while (refused.ok() && set <= limits::kKvKeysPerEpochMax) {
    const auto answer = groups.kv_set(100, epoch, fmt::format("key/{}", set), value);
    if (answer.ok()) {
      ++set;
    } else {
      refused = answer.error();
    }
  }
  EXPECT_EQ(set, limits::kKvBytesPerEpochMax / limits::kKvValueBytesMax - 1) << "keys count, too";
  EXPECT_EQ(refused.error().code, ErrorCode::kResourceExhausted);
  EXPECT_TRUE(groups.kv_set(100, epoch, "key/0", value).ok()) << "it replaces what is there";
  EXPECT_TRUE(groups.kv_set(100, epoch, "key/0", {}).ok());
  EXPECT_TRUE(groups.kv_set(100, epoch, "another", value).ok());
}

TEST_F(GroupTest, AwaitedKeysCountUntilTheirWaiterLeaves) {
  const ckpt::Epoch epoch = open(2);
  const std::vector<uint8_t> value(limits::kKvValueBytesMax);
  for (size_t i = 0; i + 1 < limits::kKvBytesPerEpochMax / value.size(); ++i) {
    ASSERT_TRUE(groups.kv_set(100, epoch, fmt::format("{:04}", i), value).ok());
  }
  const auto key = [](size_t i) { return fmt::format("{:0{}}", i, limits::kKvKeyBytesMax); };
  size_t waits = 0;
  while (waits < limits::kPendingRequestsPerSessionMax &&
         groups.kv_get(101, waits, epoch, key(waits)).ok()) {
    ++waits;
  }
  EXPECT_LT(waits, limits::kPendingRequestsPerSessionMax);
  groups.leave(101);
  EXPECT_TRUE(groups.kv_get(100, 0, epoch, key(waits)).ok());
}

TEST_F(GroupTest, ASessionRejoinsAsOneRank) {
  groups.recovered(kRun, 7, 3, 2);
  ASSERT_TRUE(groups.rejoin(kRun, 100, 0, 7).ok());
  EXPECT_FALSE(groups.rejoin(kRun, 100, 1, 7).ok());
  groups.leave(100);
  EXPECT_FALSE(groups.rejoin(kRun, 100, 1, 7).ok());
  ASSERT_TRUE(groups.rejoin(kRun, 102, 2, 7).ok());
  groups.join(kRun, {.session = 103, .rank = 0, .size = 3});
  EXPECT_FALSE(groups.rejoin(kRun, 103, 1, 7).ok()) << "it waits for the next epoch";
  EXPECT_EQ(all<Groups::EndEpoch>(groups.lost(102, "died")).size(), 1u);
}

TEST_F(GroupTest, MemberLeavingDuringOpenIsNotInEpoch) {
  groups.join(kRun, request(0, 2));
  ASSERT_EQ(all<Groups::OpenEpoch>(groups.join(kRun, request(1, 2))).size(), 1u);
  EXPECT_TRUE(groups.opens_for(kRun, 100));
  groups.leave(100);
  EXPECT_FALSE(groups.opens_for(kRun, 100));
  EXPECT_TRUE(groups.opens_for(kRun, 101));
  EXPECT_TRUE(groups.join(kRun, request(0, 2)).empty()) << "it may change its mind again";
  const auto ended = all<Groups::EndEpoch>(groups.opened(kRun, 1, 1, {}));
  ASSERT_EQ(ended.size(), 1u);
  EXPECT_THAT(ended[0].lost, ElementsAre(0));
  EXPECT_THAT(ended[0].remaining, ElementsAre(101));
  EXPECT_EQ(all<Groups::OpenEpoch>(groups.join(kRun, request(1, 2))).size(), 1u);
}

TEST_F(GroupTest, EpochWithoutRejoinEndsSilently) {
  groups.recovered(kRun, 7, 2, 2);
  EXPECT_TRUE(groups.rejoin_deadline_passed().empty());
  EXPECT_FALSE(groups.rejoin(kRun, 100, 0, 7).ok());
  EXPECT_EQ(open(2), 8u);
}

}  // namespace
}  // namespace ckptd
