#include "ckptd/ingest/ingest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ckptd/limits.h"

namespace ckptd {
namespace {

using ckpt::ErrorCode;
using ckpt::SnapshotKey;
using ckpt::UnitRange;
using testing::AllOf;
using testing::HasSubstr;

constexpr uint64_t kUnitBytes = 1000;

std::shared_ptr<const std::vector<ckpt::UnitSpec>> two_units() {
  std::vector<ckpt::UnitSpec> units(2);
  units[0].name = "trainer";
  units[1].name = "layers.0.experts.1.weights";
  for (ckpt::UnitSpec& unit : units) unit.bytes = kUnitBytes;
  return std::make_shared<const std::vector<ckpt::UnitSpec>>(units);
}

SnapshotKey key(ckpt::Step step) { return {.run = 7, .lineage = 1, .epoch = 3, .step = step}; }

std::vector<ckpt::ExtentFragment> sealed(const std::vector<UnitRange>& ranges) {
  std::vector<ckpt::ExtentFragment> fragments;
  for (const UnitRange& range : ranges) {
    fragments.push_back({.unit = range.unit, .offset = range.offset, .length = range.length});
  }
  return fragments;
}

// Two ranks: rank 0 gives all of unit 0 and the first 400 bytes of unit 1, rank 1 the rest.
class IngestTest : public testing::Test {
 protected:
  const std::vector<UnitRange> part0 = {{0, 0, kUnitBytes}, {1, 0, 400}};
  const std::vector<UnitRange> part1 = {{1, 400, 600}};
  const std::shared_ptr<const std::vector<ckpt::UnitSpec>> units = two_units();
  Ingest ingest;

  ckpt::base::Hash128 hash(const std::vector<std::vector<UnitRange>>& parts) const {
    ckpt::Plan plan{.units = {0, 1}, .fragments = {}};
    for (ckpt::Rank rank = 0; rank < parts.size(); ++rank) {
      for (const UnitRange& range : parts[rank]) plan.fragments.push_back({rank, range});
    }
    return plan_hash(plan);
  }
  Ingest::Begin part(ckpt::Step step, ckpt::Rank rank) const {
    return {.snapshot = key(step),
            .run_name = "tiny",
            .rank = rank,
            .group_size = 2,
            .plan = hash({part0, part1}),
            .units = {1, 0},
            .fragments = rank == 0 ? part0 : part1,
            .metrics = {{"loss", rank + 1.0}},
            .deadline = Time(1000)};
  }
  Ingest::Outcome begin(const Ingest::Begin& begin) { return ingest.begin(begin, units); }
  void begin_both(ckpt::Step step) {
    ASSERT_TRUE(begin(part(step, 0)).status.ok());
    ASSERT_TRUE(begin(part(step, 1)).status.ok());
  }
};

template <typename T>
const T* only(const Ingest::Actions& actions) {
  return actions.size() == 1 ? std::get_if<T>(&actions[0]) : nullptr;
}

TEST_F(IngestTest, CommitsWhenEverythingIsWritten) {
  begin_both(5);
  EXPECT_TRUE(ingest.sealed(key(5), 0, sealed(part0)).actions.empty());
  EXPECT_TRUE(ingest.written(key(5), {}).empty());
  EXPECT_FALSE(ingest.is_staged(key(5)));
  const auto outcome = ingest.sealed(key(5), 1, sealed(part1));
  EXPECT_TRUE(outcome.status.ok());
  EXPECT_NE(only<Ingest::StagedAction>(outcome.actions), nullptr);
  EXPECT_TRUE(ingest.is_staged(key(5)));
  const auto actions = ingest.written(key(5), {});
  const auto* commit = only<Ingest::CommitAction>(actions);
  ASSERT_NE(commit, nullptr);
  EXPECT_TRUE(commit->full);
  EXPECT_EQ(commit->plan, hash({part0, part1}));
  EXPECT_EQ(commit->metrics.at("loss"), 1.0) << "the lowest rank's value";
  EXPECT_TRUE(ingest.abort(key(5), {ErrorCode::kAborted, "late"}).empty());
  EXPECT_TRUE(ingest.tick(Time(5000)).empty());
  EXPECT_TRUE(ingest.committed(key(5), {}).empty());
  EXPECT_EQ(ingest.open_count(), 0u);
}

TEST_F(IngestTest, TokenCountsOfRanksMustAgree) {
  const ckpt::ExpertTokenCounts counts = {{.layer = 0, .expert = 1, .tokens = 70}};
  Ingest::Begin second = part(5, 1);
  second.expert_tokens = counts;
  ASSERT_TRUE(begin(part(5, 0)).status.ok());
  ASSERT_TRUE(begin(second).status.ok());
  ASSERT_TRUE(ingest.sealed(key(5), 0, sealed(part0)).status.ok());
  ASSERT_TRUE(ingest.sealed(key(5), 1, sealed(part1)).status.ok());
  ASSERT_TRUE(ingest.written(key(5), {}).empty());
  const auto actions = ingest.written(key(5), {});
  const auto* commit = only<Ingest::CommitAction>(actions);
  ASSERT_NE(commit, nullptr);
  EXPECT_EQ(commit->expert_tokens, counts);

  Ingest::Begin other = part(6, 0);
  other.expert_tokens = {{.layer = 0, .expert = 1, .tokens = 71}};
  second = part(6, 1);
  second.expert_tokens = counts;
  ASSERT_TRUE(begin(other).status.ok());
  const auto outcome = begin(second);
  EXPECT_THAT(outcome.status.error().message,
              HasSubstr("run tiny step 6: rank 1 gives other token counts of experts than rank 0"));
  EXPECT_NE(only<Ingest::FailAction>(outcome.actions), nullptr);

  other = part(7, 0);
  other.expert_tokens = counts;
  other.expert_tokens[0].lost = 1;
  second = part(7, 1);
  second.expert_tokens = counts;
  ASSERT_TRUE(begin(other).status.ok());
  EXPECT_FALSE(begin(second).status.ok()) << "the same tokens, others lost";
}

TEST_F(IngestTest, WritesMayEndBeforeOtherRanksBegin) {
  ASSERT_TRUE(begin(part(5, 1)).status.ok());
  EXPECT_TRUE(ingest.sealed(key(5), 1, sealed(part1)).actions.empty());
  EXPECT_TRUE(ingest.written(key(5), {}).empty());
  ASSERT_TRUE(begin(part(5, 0)).status.ok());
  ASSERT_TRUE(ingest.sealed(key(5), 0, sealed({part0[1]})).status.ok());
  ASSERT_TRUE(ingest.sealed(key(5), 0, sealed({part0[0]})).status.ok());
  EXPECT_TRUE(ingest.written(key(5), {}).empty());
  const auto last = ingest.written(key(5), {});
  EXPECT_NE(only<Ingest::CommitAction>(last), nullptr);
}

TEST_F(IngestTest, RangesMayBeSealedInPieces) {
  begin_both(5);
  EXPECT_TRUE(ingest.sealed(key(5), 1, sealed({{1, 900, 100}})).status.ok());
  EXPECT_TRUE(ingest.sealed(key(5), 1, sealed({{1, 400, 1}})).status.ok());
  EXPECT_TRUE(ingest.sealed(key(5), 1, sealed({{1, 401, 499}})).status.ok());
  EXPECT_TRUE(ingest.sealed(key(5), 0, sealed(part0)).status.ok());
  EXPECT_TRUE(ingest.is_staged(key(5)));
}

TEST_F(IngestTest, NamesTheRanksThatDisagree) {
  Ingest::Begin other = part(5, 1);
  other.plan.low += 1;
  ASSERT_TRUE(begin(part(5, 0)).status.ok());
  const auto outcome = begin(other);
  ASSERT_FALSE(outcome.status.ok());
  EXPECT_THAT(outcome.status.error().message,
              AllOf(HasSubstr("run tiny step 5"), HasSubstr("rank 1"), HasSubstr("plans differ")));
  EXPECT_NE(only<Ingest::FailAction>(outcome.actions), nullptr);
  EXPECT_FALSE(ingest.is_open(key(5)));
}

TEST_F(IngestTest, ErrorNamesTheDisagreeingMinority) {
  const std::vector<std::vector<UnitRange>> parts = {
      {{0, 0, kUnitBytes}}, {{1, 0, 500}}, {{1, 500, 500}}};
  for (ckpt::Rank wrong = 0; wrong < 3; ++wrong) {
    Ingest::Outcome last;
    for (ckpt::Rank rank = 0; rank < 3; ++rank) {
      Ingest::Begin member = part(wrong, rank);
      member.group_size = 3;
      member.fragments = parts[rank];
      member.plan = hash(parts);
      if (rank == wrong) member.plan.high ^= 1;
      last = begin(member);
    }
    ASSERT_FALSE(last.status.ok());
    EXPECT_THAT(last.status.error().message,
                HasSubstr(fmt::format("rank {} does not agree to the plan of ranks", wrong)));
  }
}

TEST_F(IngestTest, HoleNamesUnitAndRange) {
  Ingest::Begin hole = part(5, 1);
  hole.fragments = {{1, 400, 500}};
  hole.plan = hash({part0, hole.fragments});
  Ingest::Begin first = part(5, 0);
  first.plan = hole.plan;
  ASSERT_TRUE(begin(first).status.ok());
  const auto outcome = begin(hole);
  ASSERT_FALSE(outcome.status.ok());
  EXPECT_THAT(outcome.status.error().message,
              AllOf(HasSubstr("layers.0.experts.1.weights"), HasSubstr("900"), HasSubstr("1000")));
  EXPECT_NE(only<Ingest::FailAction>(outcome.actions), nullptr);
}

TEST_F(IngestTest, OverlapNamesUnitAndRange) {
  Ingest::Begin overlap = part(5, 1);
  overlap.fragments = {{1, 300, 700}};
  overlap.plan = hash({part0, overlap.fragments});
  Ingest::Begin first = part(5, 0);
  first.plan = overlap.plan;
  ASSERT_TRUE(begin(first).status.ok());
  const auto outcome = begin(overlap);
  ASSERT_FALSE(outcome.status.ok());
  EXPECT_THAT(outcome.status.error().message,
              AllOf(HasSubstr("layers.0.experts.1.weights"), HasSubstr("300"), HasSubstr("400")));
}

TEST_F(IngestTest, RefusesPartsOfAnotherRank) {
  // Both parts have the agreed hash and cover everything, but the ranks have exchanged them.
  Ingest::Begin first = part(5, 0);
  Ingest::Begin second = part(5, 1);
  std::swap(first.fragments, second.fragments);
  ASSERT_TRUE(begin(first).status.ok());
  const auto outcome = begin(second);
  ASSERT_FALSE(outcome.status.ok());
  EXPECT_THAT(outcome.status.error().message, HasSubstr("another rank's part"));
}

TEST_F(IngestTest, RefusesInvalidParts) {
  const auto refused = [&](ckpt::Step step, auto change) {
    Ingest::Begin bad = part(step, 0);
    change(bad);
    const auto outcome = begin(bad);
    EXPECT_FALSE(outcome.status.ok());
    EXPECT_FALSE(ingest.is_open(key(step)));
    return outcome.status.ok() ? std::string() : outcome.status.error().message;
  };
  EXPECT_THAT(refused(1, [](auto& b) { b.fragments[0].length = kUnitBytes + 1; }),
              HasSubstr("unit trainer"));
  EXPECT_THAT(refused(2, [](auto& b) { b.fragments[0].offset = UINT64_MAX; }),
              HasSubstr("unit trainer"));
  EXPECT_THAT(refused(3, [](auto& b) { b.fragments[0].length = 0; }), HasSubstr("unit trainer"));
  EXPECT_THAT(refused(4, [](auto& b) { b.fragments[0].unit = 9; }), HasSubstr("unit number 9"));
  EXPECT_THAT(refused(5,
                      [](auto& b) {
                        b.fragments.push_back({0, 5, 1});
                      }),
              HasSubstr("declared twice"));
  EXPECT_THAT(refused(6, [](auto& b) { b.units = {0, 0}; }), HasSubstr("named twice"));
  EXPECT_THAT(refused(7, [](auto& b) { b.units = {}; }), HasSubstr("no unit"));
  EXPECT_THAT(refused(8, [](auto& b) { b.units = {0}; }), HasSubstr("does not hold it"));
  EXPECT_THAT(refused(9, [](auto& b) { b.rank = 2; }), HasSubstr("rank 2 of 2"));
}

TEST_F(IngestTest, SealsAreCheckedAgainstTheDeclaration) {
  begin_both(1);
  const auto twice = [&] {
    EXPECT_TRUE(ingest.sealed(key(1), 1, sealed({{1, 400, 100}})).status.ok());
    return ingest.sealed(key(1), 1, sealed({{1, 450, 100}}));
  }();
  ASSERT_FALSE(twice.status.ok());
  EXPECT_THAT(twice.status.error().message,
              AllOf(HasSubstr("rank 1"), HasSubstr("layers.0.experts.1.weights"),
                    HasSubstr("sealed twice")));
  EXPECT_NE(only<Ingest::FailAction>(twice.actions), nullptr);
  begin_both(2);
  const auto undeclared = ingest.sealed(key(2), 1, sealed({{0, 0, 10}}));
  ASSERT_FALSE(undeclared.status.ok());
  EXPECT_THAT(undeclared.status.error().message, HasSubstr("not declared"));
  ASSERT_TRUE(begin(part(3, 0)).status.ok());
  const auto early = ingest.sealed(key(3), 1, sealed(part1));
  ASSERT_FALSE(early.status.ok());
  EXPECT_THAT(early.status.error().message, HasSubstr("before it began"));
}

TEST_F(IngestTest, ASecondBeginIsRefusedAndHarmless) {
  begin_both(5);
  const auto again = begin(part(5, 1));
  EXPECT_EQ(again.status.error().code, ErrorCode::kAlreadyExists);
  EXPECT_TRUE(again.actions.empty());
  EXPECT_TRUE(ingest.is_open(key(5)));
}

TEST_F(IngestTest, LateRankLearnsWhySnapshotFailed) {
  ASSERT_TRUE(begin(part(5, 0)).status.ok());
  ASSERT_EQ(ingest.abort(key(5), {ErrorCode::kAborted, "rank 0 changed its mind"}).size(), 1u);
  const auto late = begin(part(5, 1));
  ASSERT_FALSE(late.status.ok());
  EXPECT_THAT(late.status.error().message, HasSubstr("changed its mind"));
  EXPECT_FALSE(ingest.is_open(key(5)));
  EXPECT_FALSE(ingest.sealed(key(5), 0, sealed(part0)).status.ok());
  EXPECT_TRUE(ingest.written(key(5), {}).empty());
  Ingest::Begin next = part(5, 0);
  next.snapshot.attempt = 1;
  EXPECT_TRUE(begin(next).status.ok());
}

TEST_F(IngestTest, RefusedBeginFailsSnapshotForAllRanks) {
  const ckpt::Error error{ErrorCode::kResourceExhausted, "no slabs for rank 1"};
  EXPECT_EQ(ingest.refuse(key(5), error).size(), 1u);
  EXPECT_TRUE(ingest.refuse(key(5), error).empty());
  EXPECT_THAT(begin(part(5, 0)).status.error().message, HasSubstr("no slabs for rank 1"));
  ASSERT_TRUE(begin(part(6, 0)).status.ok());
  EXPECT_EQ(ingest.refuse(key(6), error).size(), 1u);
  EXPECT_FALSE(ingest.is_open(key(6)));
}

TEST_F(IngestTest, ACancelledBeginFailsACompleteSnapshot) {
  Ingest::Begin all = part(5, 0), none = part(5, 1);
  all.fragments = {{0, 0, kUnitBytes}, {1, 0, kUnitBytes}};
  none.fragments.clear();
  all.plan = none.plan = hash({all.fragments, {}});
  ASSERT_TRUE(begin(all).status.ok());
  ASSERT_TRUE(ingest.sealed(key(5), 0, sealed(all.fragments)).status.ok());
  EXPECT_TRUE(ingest.written(key(5), {}).empty());
  ASSERT_EQ(begin(none).actions.size(), 2u) << "staged, and to be committed";
  EXPECT_EQ(ingest.cancel_begin(key(5), {ErrorCode::kIo, "no space"}).size(), 1u);
}

TEST_F(IngestTest, AFailedWriteFailsTheSnapshotOnce) {
  begin_both(5);
  ASSERT_TRUE(ingest.sealed(key(5), 0, sealed(part0)).status.ok());
  ASSERT_TRUE(ingest.sealed(key(5), 1, sealed(part1)).status.ok());
  const auto actions = ingest.written(key(5), ckpt::Error{ErrorCode::kIo, "segment 3: no luck"});
  const auto* fail = only<Ingest::FailAction>(actions);
  ASSERT_NE(fail, nullptr);
  EXPECT_EQ(fail->error.code, ErrorCode::kIo);
  EXPECT_TRUE(ingest.written(key(5), {}).empty());
}

TEST_F(IngestTest, AFailedRecordFailsTheSnapshot) {
  begin_both(5);
  ASSERT_TRUE(ingest.sealed(key(5), 0, sealed(part0)).status.ok());
  ASSERT_TRUE(ingest.sealed(key(5), 1, sealed(part1)).status.ok());
  ingest.written(key(5), {});
  ingest.written(key(5), {});
  const auto actions = ingest.committed(key(5), ckpt::Error{ErrorCode::kIo, "journal closed"});
  EXPECT_NE(only<Ingest::FailAction>(actions), nullptr);
  EXPECT_TRUE(ingest.failure(key(5)).has_value());
}

TEST_F(IngestTest, MemberLostAfterItsSealsFailsNothing) {
  begin_both(5);
  begin_both(6);
  ASSERT_TRUE(ingest.sealed(key(5), 1, sealed(part1)).status.ok());
  const auto actions = ingest.member_gone(7, 3, 1, "its process died");
  const auto* fail = only<Ingest::FailAction>(actions);
  ASSERT_NE(fail, nullptr);
  EXPECT_EQ(fail->snapshot, key(6));
  EXPECT_THAT(fail->error.message, AllOf(HasSubstr("rank 1"), HasSubstr("its process died")));
  ASSERT_TRUE(ingest.sealed(key(5), 0, sealed(part0)).status.ok());
  EXPECT_TRUE(ingest.is_staged(key(5)));
  EXPECT_TRUE(ingest.member_gone(7, 2, 0, "other epoch").empty());
  EXPECT_TRUE(ingest.member_gone(8, 3, 0, "other run").empty());
}

TEST_F(IngestTest, DeadlineNamesLateRanks) {
  ASSERT_TRUE(begin(part(5, 0)).status.ok());
  EXPECT_TRUE(ingest.tick(Time(999)).empty());
  auto actions = ingest.tick(Time(1000));
  ASSERT_NE(only<Ingest::FailAction>(actions), nullptr);
  EXPECT_EQ(only<Ingest::FailAction>(actions)->error.code, ErrorCode::kDeadlineExceeded);
  EXPECT_THAT(only<Ingest::FailAction>(actions)->error.message,
              AllOf(HasSubstr("rank 1 has not begun it"),
                    HasSubstr("rank 0 has not sealed all of unit trainer")));
}

TEST_F(IngestTest, OpenSnapshotsAreBounded) {
  for (ckpt::Step step = 0; step < limits::kSnapshotsOpenPerRunMax; ++step) begin_both(step);
  const auto refused = begin(part(100, 0));
  ASSERT_FALSE(refused.status.ok());
  EXPECT_EQ(refused.status.error().code, ErrorCode::kResourceExhausted);
  ingest.abort(key(0), {ErrorCode::kAborted, "make room"});
  EXPECT_FALSE(begin(part(100, 1)).status.ok()) << "its other member was refused";
  EXPECT_TRUE(begin(part(101, 0)).status.ok());
}

TEST_F(IngestTest, MemoryOfFailuresIsBounded) {
  for (ckpt::Step step = 0; step < 2 * limits::kFailedSnapshotsRemembered; ++step) {
    ASSERT_TRUE(begin(part(step, 0)).status.ok());
    ingest.abort(key(step), {ErrorCode::kAborted, "again"});
  }
  EXPECT_FALSE(ingest.failure(key(0)).has_value());
  EXPECT_TRUE(ingest.failure(key(2 * limits::kFailedSnapshotsRemembered - 1)).has_value());
}

TEST_F(IngestTest, ASnapshotHasABoundOfFragments) {
  Ingest::Begin many = part(5, 0);
  many.fragments.assign(limits::kFragmentsPerSnapshotMax, {0, 0, 1});
  ASSERT_TRUE(begin(part(5, 1)).status.ok());
  const auto outcome = begin(many);
  EXPECT_EQ(outcome.status.error().code, ErrorCode::kResourceExhausted);
  EXPECT_THAT(outcome.status.error().message, HasSubstr("fragments of all ranks, the most is"));
  EXPECT_NE(only<Ingest::FailAction>(outcome.actions), nullptr);
}

// Each is a table in the commit record.
TEST_F(IngestTest, ASnapshotHasABoundOfSlabs) {
  begin_both(5);
  for (size_t i = 0; i < limits::kExtentsPerSnapshotMax; ++i) {
    ASSERT_TRUE(ingest.sealed(key(5), 0, {}).status.ok());
  }
  const auto outcome = ingest.sealed(key(5), 0, sealed(part0));
  EXPECT_EQ(outcome.status.error().code, ErrorCode::kResourceExhausted);
  EXPECT_THAT(outcome.status.error().message, HasSubstr("slabs of all ranks: take larger ones"));
  EXPECT_NE(only<Ingest::FailAction>(outcome.actions), nullptr);
}

}  // namespace
}  // namespace ckptd
