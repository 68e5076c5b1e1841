#include "ckptd/snapshots/waiting_begins.h"

#include <gmock/gmock.h>

#include <memory>
#include <vector>

namespace ckptd {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class WaitingBeginsTest : public testing::Test {
 protected:
  static ckpt::fb::BeginSnapshotT message(ckpt::Step step, uint32_t attempt = 0) {
    ckpt::fb::BeginSnapshotT begin;
    begin.step = step;
    begin.attempt = attempt;
    return begin;
  }
  bool add(ckpt::RunId run, ckpt::SessionId session, ckpt::Step step) {
    const auto added = waiting_.add(run, session, message(step));
    EXPECT_TRUE(added.ok()) << added.error().message;
    return *added;
  }
  std::vector<ckpt::Step> steps() {
    std::vector<ckpt::Step> steps;
    waiting_.retry([&](const WaitingBegin& begin) { steps.push_back(begin.message.step); });
    return steps;
  }

  WaitingBegins waiting_{{.begins_per_run = 3, .bytes = 1 << 20}};
};

TEST_F(WaitingBeginsTest, RetriesBeginsInTheOrderOfTheirArrival) {
  EXPECT_EQ(waiting_.count(), 0u);
  EXPECT_TRUE(add(1, 20, 30));
  EXPECT_TRUE(add(1, 10, 10));
  EXPECT_TRUE(add(1, 20, 20));
  EXPECT_EQ(waiting_.count(), 3u);
  EXPECT_THAT(steps(), ElementsAre(30, 10, 20));
  EXPECT_EQ(waiting_.count(), 0u);
}

TEST_F(WaitingBeginsTest, KeepsBeginsThatARetryAddsBack) {
  add(1, 10, 10);
  add(2, 20, 20);
  waiting_.retry([&](const WaitingBegin& begin) {
    if (begin.message.step == 10) add(1, 10, 10);
  });
  EXPECT_THAT(steps(), ElementsAre(10));
}

TEST_F(WaitingBeginsTest, RefusesASecondBeginOfTheStep) {
  add(1, 10, 10);
  const auto again = waiting_.add(1, 10, message(10, /*attempt=*/1));
  ASSERT_FALSE(again.ok());
  EXPECT_EQ(again.error().code, ckpt::ErrorCode::kAlreadyExists);
  EXPECT_THAT(again.error().message, HasSubstr("waits to begin this step already"));
  EXPECT_TRUE(add(1, 11, 10)) << "another rank";
}

TEST_F(WaitingBeginsTest, BoundsTheNumberPerRun) {
  for (ckpt::Step step = 0; step < 3; ++step) ASSERT_TRUE(add(1, 10, step));
  EXPECT_FALSE(add(1, 11, 0));
  EXPECT_TRUE(add(2, 12, 0)) << "another run";
}

TEST_F(WaitingBeginsTest, BoundsTheMemoryOfAllRunsTogether) {
  ckpt::fb::BeginSnapshotT large = message(1);
  large.units.resize((1 << 19) / sizeof(ckpt::UnitId));
  const auto first = waiting_.add(1, 10, large);
  ASSERT_TRUE(first.ok());
  EXPECT_TRUE(*first);
  const auto second = waiting_.add(2, 11, large);
  ASSERT_TRUE(second.ok());
  EXPECT_FALSE(*second);
}

TEST_F(WaitingBeginsTest, CountsTheNamesOfBlobs) {
  ckpt::fb::BeginSnapshotT large = message(1);
  large.blobs.push_back(std::make_unique<ckpt::fb::BlobDeclaredT>());
  large.blobs[0]->name.resize(1 << 20);
  const auto added = waiting_.add(1, 10, large);
  ASSERT_TRUE(added.ok());
  EXPECT_FALSE(*added);
}

TEST_F(WaitingBeginsTest, DropsTheBeginsOfOneSession) {
  add(1, 10, 10);
  add(1, 11, 20);
  add(2, 10, 30);
  waiting_.drop_session(10);
  EXPECT_THAT(steps(), ElementsAre(20));
}

TEST_F(WaitingBeginsTest, DropsExactlyTheAbortedAttempt) {
  add(1, 10, 10);
  EXPECT_FALSE(waiting_.drop(1, 10, 10, /*attempt=*/1));
  EXPECT_FALSE(waiting_.drop(1, 11, 10, /*attempt=*/0));
  EXPECT_FALSE(waiting_.drop(2, 10, 10, /*attempt=*/0));
  EXPECT_TRUE(waiting_.drop(1, 10, 10, /*attempt=*/0));
  EXPECT_THAT(steps(), IsEmpty());
}

TEST_F(WaitingBeginsTest, HandsOutEveryDroppedBegin) {
  add(1, 10, 10);
  add(2, 20, 20);
  std::vector<ckpt::SessionId> dropped;
  waiting_.drop_all([&](const WaitingBegin& begin) { dropped.push_back(begin.session); });
  EXPECT_THAT(dropped, ElementsAre(10, 20));
  EXPECT_EQ(waiting_.count(), 0u);
}

}  // namespace
}  // namespace ckptd
