// The pace of checkpoints over a run: due checkpoints, agreed values, and state kept by a resume.
#include "trainer/partial/pacer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace moetrain {
namespace {

using testing::HasSubstr;
using ResumeCause = Pacer::ResumeCause;

constexpr uint64_t kFull = 100'000'000 + 8 * 50'000'000;

PaceOptions automatic(bool k_too = false) {
  return {.auto_every = true,
          .auto_experts = k_too,
          .experts = 8,
          .dense_bytes = 100'000'000,
          .expert_bytes = 50'000'000};
}

// Ranks that step together, decide when all are ready, and take every due checkpoint.
class Group {
 public:
  explicit Group(const PaceOptions& options, size_t ranks = 2) : pacers_(ranks, Pacer(options)) {}

  // One boundary and one step; rank r is slower by a factor of (1 + r / 10) in everything.
  void step(double step_ms = 100, double stall_ms = 4, double durable_ms = 150) {
    bool taken = pacers_[0].due(step_);
    for (Pacer& pacer : pacers_) EXPECT_EQ(pacer.due(step_), taken) << "step " << step_;
    if (taken) {
      taken_.push_back(step_);
      for (Pacer& pacer : pacers_) pacer.taking(step_, kFull, kFull);
    }
    agree();
    for (size_t rank = 0; rank < pacers_.size(); ++rank) {
      const double slower = 1 + static_cast<double>(rank) / 10;
      pacers_[rank].stepped(step_ms * slower, taken ? stall_ms * slower : 0, taken);
      if (taken) pacers_[rank].durable(step_, durable_ms * slower);
    }
    ++step_;
  }
  void resume(uint64_t step, const PaceState& saved, const std::vector<ResumeCause>& causes,
              const FailureRecord& known = {}) {
    std::vector<int64_t> all(2);
    for (size_t rank = 0; rank < pacers_.size(); ++rank) {
      if (causes[rank] != ResumeCause::kSurvived) pacers_[rank].start();
      pacers_[rank].resume(saved, causes[rank], known, step);
      maximum(all, pacers_[rank].resume_counts());
    }
    for (Pacer& pacer : pacers_) pacer.agree(all);
    step_ = step;
  }

  const Pacer& operator[](size_t rank) const { return pacers_[rank]; }
  const std::vector<uint64_t>& taken() const { return taken_; }
  const std::vector<std::string>& changes() const { return changes_; }
  uint64_t now() const { return step_; }

 private:
  static void maximum(std::vector<int64_t>& all, const std::vector<int64_t>& one) {
    all.resize(one.size());
    for (size_t i = 0; i < one.size(); ++i) all[i] = std::max(all[i], one[i]);
  }
  void agree() {
    if (!pacers_[0].decides_at(step_)) {
      for (Pacer& pacer : pacers_) EXPECT_FALSE(pacer.decides_at(step_));
      return;
    }
    std::vector<int64_t> all;
    for (Pacer& pacer : pacers_) maximum(all, pacer.measured());
    std::optional<std::string> change;
    for (Pacer& pacer : pacers_) change = pacer.decide(step_, all);
    for (Pacer& pacer : pacers_) EXPECT_EQ(pacer.reason(), pacers_[0].reason());
    if (change) changes_.push_back(*change);
  }

  std::vector<Pacer> pacers_;
  uint64_t step_ = 0;
  std::vector<uint64_t> taken_;
  std::vector<std::string> changes_;
};

TEST(PacerTest, FixedIntervalStaysAsRequested) {
  Group group({.every = 5, .experts = 8});
  for (int i = 0; i < 22; ++i) group.step();
  EXPECT_THAT(group.taken(), testing::ElementsAre(5, 10, 15, 20));
  EXPECT_TRUE(group.changes().empty());
  EXPECT_EQ(group[0].k(), std::nullopt);
  EXPECT_EQ(group[0].widest(), 5u);
  EXPECT_EQ(group[0].reason(), "from flags and their defaults");
  Group none({.auto_experts = true, .every = 0, .experts = 8});
  for (int i = 0; i < 22; ++i) none.step();
  EXPECT_TRUE(none.taken().empty()) << "only the last one";
}

TEST(PacerTest, AlternatesCheckpointingAndPauses) {
  Group group({.every = 2, .turns = 6, .experts = 8});
  for (int i = 0; i < 26; ++i) group.step();
  EXPECT_THAT(group.taken(), testing::ElementsAre(6, 8, 10, 18, 20, 22));
  EXPECT_EQ(group[0].widest(), 8u) << "from 10 to 18";
}

TEST(PacerTest, MeasuresThenPacesByTheSlowestRank) {
  Group group(automatic());
  for (int i = 0; i < 60; ++i) group.step();
  ASSERT_GE(group.changes().size(), 1u);
  EXPECT_THAT(group.changes()[0], HasSubstr("of 8 of 8 experts: a step takes 110 ms"));
  EXPECT_THAT(group.changes()[0], HasSubstr("476.8 MiB blocks 4.4 ms"));
  EXPECT_THAT(group.changes()[0], HasSubstr("durable after 165 ms"));
  EXPECT_EQ(group.taken()[0], 4u) << "soon, to have something measured";
  EXPECT_GE(group[0].every(), 2u) << "storage takes one and a half steps";
}

TEST(PacerTest, IntervalsGrowWhileNothingFails) {
  Group group(automatic());
  for (int i = 0; i < 3'000; ++i) group.step();
  const uint64_t late = group[0].every();
  EXPECT_GT(late, 8u);
  // sqrt(2 C M) with C = 4.4 ms and M = twice the age.
  const double seconds = static_cast<double>(group[0].state().seen_ns) / 1e9;
  EXPECT_NEAR(static_cast<double>(late) * 0.11, daly_interval_s(0.0044, 2 * seconds),
              0.4 * static_cast<double>(late) * 0.11);
  EXPECT_LT(group.changes().size(), 40u) << "noise is not told";
  EXPECT_THAT(group.changes().back(), testing::Not(HasSubstr(group[0].reason())))
      << "the reasons are those of now";
}

TEST(PacerTest, FailuresShortenIntervals) {
  Group group(automatic(), 3);
  for (int i = 0; i < 3'000; ++i) group.step();
  const uint64_t before = group[0].every();
  const PaceState saved = group[0].state();
  for (int failure = 0; failure < 4; ++failure) {
    group.resume(2'900, saved,
                 {ResumeCause::kSurvived, ResumeCause::kRestarted, ResumeCause::kSurvived});
    for (int i = 0; i < 100; ++i) group.step();
  }
  EXPECT_EQ(group[1].state().failures, 4u) << "the view knows of none of them";
  EXPECT_LT(group[0].every(), before);
}

TEST(PacerTest, CountsFailuresOfEveryKind) {
  Group group(automatic(), 2);
  for (int i = 0; i < 40; ++i) group.step();
  PaceState saved = group[0].state();
  // All ranks die; the supervisor that restarts them knows of an earlier failure.
  group.resume(30, saved, {ResumeCause::kRestarted, ResumeCause::kRestarted}, {3, 1'000});
  EXPECT_EQ(group[0].state().failures, 4u);
  EXPECT_EQ(group[0].state().seen_ns, 1'000'000'000'000);
  // Another supervisor: the run was interrupted, or had ended.
  saved.failures = 7;
  group.resume(30, saved, {ResumeCause::kResumed, ResumeCause::kResumed});
  EXPECT_EQ(group[1].state().failures, 8u);
  saved.ended = true;
  group.resume(30, saved, {ResumeCause::kResumed, ResumeCause::kResumed});
  EXPECT_EQ(group[1].state().failures, 7u) << "it was stopped, it did not fail";
  EXPECT_FALSE(group[1].state().ended);
  saved.ended = false;
  group.resume(30, saved, {ResumeCause::kChosen, ResumeCause::kChosen});
  EXPECT_EQ(group[1].state().failures, 7u) << "going back is nobody's failure";
}

TEST(PacerTest, RestartedRunRemembersFailure) {
  Pacer survivor(automatic());
  survivor.stepped(100, 0, false);
  survivor.start(true);
  EXPECT_EQ(survivor.state().failures, 1u);
  EXPECT_EQ(survivor.state().seen_ns, 100'000'000);
  EXPECT_FALSE(survivor.due(3));
  EXPECT_TRUE(survivor.due(4));
  // Restarted ranks learn of the failure with the first decision.
  Pacer other(automatic());
  std::vector<int64_t> measured = survivor.measured();
  measured[0] = measured[1] = measured[2] = 1'000'000;
  measured.back() = 0;
  ASSERT_TRUE(other.decide(18, measured));
  EXPECT_EQ(other.state().failures, 1u);
}

TEST(PacerTest, ResumeKeepsPaceInForce) {
  Group group(automatic(true));
  for (int i = 0; i < 500; ++i) group.step();
  const PaceState saved = group[0].state();
  Group other(automatic(true), 4);
  other.resume(
      500, saved,
      {ResumeCause::kResumed, ResumeCause::kResumed, ResumeCause::kResumed, ResumeCause::kResumed});
  EXPECT_EQ(other[3].every(), saved.every);
  EXPECT_EQ(other[3].k(), saved.k);
  EXPECT_FALSE(other[0].due(500)) << "the view is a checkpoint";
  EXPECT_TRUE(other[0].due(500 + saved.every));
  // A new process has no measurements: the values agreed before count.
  std::vector<int64_t> measured = other[0].measured();
  EXPECT_EQ(measured[0], saved.step_ns);
  EXPECT_EQ(measured.back(), 0) << "nothing is missing";
}

// A survivor took part in the decision, a joining rank did not; now both have the same state.
TEST(PacerTest, SurvivorAndJoinerTakeOverSamePace) {
  PaceOptions options = automatic(true);
  options.memory = true;
  Group group(options, 3);
  for (int i = 0; i < 60; ++i) group.step();
  const PaceState handed = group[0].state();
  Pacer survivor = group[2];
  Pacer joiner(options);
  for (Pacer* pacer : {&survivor, &joiner}) {
    ASSERT_TRUE(pacer->take_over(handed, 60).ok());
    EXPECT_EQ(pacer->every(), handed.every);
    EXPECT_EQ(pacer->k(), handed.k);
    EXPECT_EQ(pacer->reason(), "as before the members changed");
    EXPECT_FALSE(pacer->due(handed.taken));
    EXPECT_TRUE(pacer->due(handed.taken + handed.every));
    EXPECT_TRUE(pacer->decides_at(68)) << "soon, with what is measured among the new members";
  }
  EXPECT_EQ(joiner.state(), survivor.state());
  EXPECT_EQ(joiner.k_snapshot(), survivor.k_snapshot());
  // Measurements among the old members count as agreed, not as measured.
  survivor.stepped(7, 0, false);
  EXPECT_EQ(survivor.measured()[0], handed.step_ns);
  EXPECT_EQ(joiner.measured()[0], handed.step_ns);
  // A rollback counts as a failure with a measured cost: checkpoints become more frequent.
  joiner.rolled_back(250);
  EXPECT_EQ(joiner.state().failures, handed.failures + 1);
  EXPECT_EQ(joiner.measured()[3], 250'000'000);
}

TEST(PacerTest, RefusesInvalidHandover) {
  Pacer pacer(automatic());
  const PaceState before = pacer.state();
  const Status taken = pacer.take_over({.every = 5, .widest = 5, .k = 9}, 3);
  ASSERT_FALSE(taken.ok());
  EXPECT_EQ(taken.error().code, ckpt::ErrorCode::kCorrupt);
  EXPECT_THAT(taken.error().message, HasSubstr("handover: checkpoints every 5 steps of 9 experts"));
  EXPECT_EQ(pacer.state(), before);
}

TEST(PacerTest, ChoosesExpertsThatStorageSustains) {
  Group fast(automatic(true));
  for (int i = 0; i < 200; ++i) fast.step(100, 4, 50);
  EXPECT_EQ(fast[0].k(), 8u);
  Group slow({.auto_experts = true,
              .every = 2,
              .experts = 8,
              .dense_bytes = 100'000'000,
              .expert_bytes = 50'000'000});
  // A full checkpoint takes 4 steps. Two steps suffice for half of its bytes: three experts.
  for (int i = 0; i < 200; ++i) slow.step(100, 4, 400);
  EXPECT_EQ(slow[0].k(), 3u);
  EXPECT_EQ(slow[0].every(), 2u) << "as asked for";
}

TEST(PacerTest, SnapshotsAsManyExpertsAsStepHides) {
  const PaceOptions options{.memory = true,
                            .every = 2,
                            .k = 1,
                            .experts = 8,
                            .dense_bytes = 100'000'000,
                            .expert_bytes = 50'000'000};
  Group group(options);
  EXPECT_EQ(group[0].k_snapshot(), std::nullopt) << "nothing is measured";
  // A quarter of a step is 27.5 ms. All bytes take 55 ms: half of them fit, three experts.
  for (int i = 0; i < 40; ++i) group.step(100, 50, 50);
  EXPECT_EQ(group[0].k_snapshot(), 3u);
  EXPECT_EQ(group[1].k_snapshot(), 3u);
  EXPECT_EQ(group[0].k(), std::nullopt) << "as asked for";
  ASSERT_FALSE(group.changes().empty());
  EXPECT_THAT(group.changes().back(), HasSubstr("every 2 steps, of 1 of 8 experts, 3 copied"));
  const PaceState saved = group[0].state();
  group.resume(38, saved, {ResumeCause::kRestarted, ResumeCause::kSurvived});
  EXPECT_EQ(group[0].k_snapshot(), 3u) << "by what was agreed before";
  EXPECT_EQ(group[1].k_snapshot(), 3u);
  PaceOptions fixed = options;
  fixed.k_snapshot = 4;
  EXPECT_FALSE(fixed.any()) << "there is nothing to choose";
}

TEST(PacerTest, ResumeKeepsRaisedK) {
  Group group({.auto_experts = true,
               .every = 2,
               .experts = 8,
               .dense_bytes = 100'000'000,
               .expert_bytes = 50'000'000},
              1);
  for (int i = 0; i < 100; ++i) group.step(100, 4, 400);
  Pacer pacer = group[0];
  pacer.raise_k(6);
  EXPECT_EQ(pacer.k(), 6u);
  EXPECT_EQ(pacer.state().k_min, 6u);
  Group later({.auto_experts = true,
               .every = 2,
               .experts = 8,
               .dense_bytes = 100'000'000,
               .expert_bytes = 50'000'000},
              1);
  later.resume(100, pacer.state(), {ResumeCause::kResumed});
  for (int i = 0; i < 100; ++i) later.step(100, 4, 400);
  EXPECT_EQ(later[0].k(), 6u);
}

TEST(PacerTest, WaitsUntilEveryRankHasMeasured) {
  Pacer pacer(automatic());
  ASSERT_TRUE(pacer.decides_at(18));
  std::vector<int64_t> measured = pacer.measured();
  EXPECT_EQ(measured.back(), 1);
  EXPECT_EQ(pacer.decide(18, measured), std::nullopt);
  EXPECT_FALSE(pacer.decides_at(19));
  EXPECT_TRUE(pacer.decides_at(20));
  pacer.durable(99, 5);  // an unknown snapshot
  EXPECT_EQ(pacer.measured().back(), 1);
}

TEST(PacerTest, PartialSnapshotsAreMeasuredByTheirBytes) {
  Pacer pacer(automatic());
  pacer.taking(2, kFull, kFull);  // the first snapshot is slow and not measured
  pacer.stepped(100, 900, true);
  pacer.durable(2, 900);
  EXPECT_EQ(pacer.measured()[1], 0);
  for (const uint64_t step : {4, 6, 8}) {
    EXPECT_EQ(pacer.measured().back(), 1) << "two are too few";
    pacer.taking(step, kFull / 5, kFull / 10);
    pacer.stepped(100, 2, true);
    pacer.durable(step, 30);
  }
  EXPECT_EQ(pacer.measured().back(), 0);
  EXPECT_EQ(pacer.measured()[1], 10'000'000);
  EXPECT_EQ(pacer.measured()[2], 300'000'000) << "goes with what is written";
}

TEST(PacerTest, RollbacksBeyondTheBudgetHalveTheInterval) {
  Pacer pacer({.every = 10, .experts = 8});
  EXPECT_FALSE(pacer.is_halved());
  EXPECT_TRUE(pacer.overspent());
  EXPECT_EQ(pacer.every(), 5u);
  EXPECT_TRUE(pacer.due(15));
  EXPECT_TRUE(pacer.overspent());
  EXPECT_EQ(pacer.every(), 2u);
  Pacer resumed({.every = 10, .experts = 8});
  resumed.resume(pacer.state(), ResumeCause::kResumed, {}, 20);
  EXPECT_EQ(resumed.every(), 2u);
  Pacer joined({.every = 10, .experts = 8});
  ASSERT_TRUE(joined.take_over(pacer.state(), 20).ok());
  EXPECT_EQ(joined.every(), 2u);
  EXPECT_TRUE(pacer.overspent());
  EXPECT_EQ(pacer.every(), 1u);
  EXPECT_FALSE(pacer.overspent()) << "every step already";
  EXPECT_EQ(pacer.widest(), 10u) << "as there were such intervals";
  pacer.within_budget();
  EXPECT_FALSE(pacer.is_halved());
  EXPECT_EQ(pacer.every(), 10u);
  Pacer none({.every = 0, .experts = 8});
  EXPECT_FALSE(none.overspent()) << "only the last one, as before";
}

TEST(PacerTest, NoIntervalIsHalvedBelowWhatStorageSustains) {
  Group group(automatic(), 1);
  // Three steps until a checkpoint is durable.
  for (int i = 0; i < 400; ++i) group.step(100, 4, 300);
  Pacer pacer = group[0];
  const uint64_t whole = pacer.every();
  ASSERT_GT(whole, 6u);
  while (pacer.overspent()) EXPECT_LT(pacer.every(), whole);
  EXPECT_EQ(pacer.every(), 3u);
  Pacer joined(automatic());
  ASSERT_TRUE(joined.take_over(pacer.state(), 400).ok());
  EXPECT_EQ(joined.every(), 3u) << "from the same measures";
}

TEST(PacerTest, RefusesInvalidSavedPace) {
  EXPECT_TRUE(check_pace({}, 8).ok());
  EXPECT_TRUE(check_pace({.every = 5, .widest = 5, .k = 8}, 8).ok());
  EXPECT_FALSE(check_pace({.every = 5, .widest = 4}, 8).ok());
  EXPECT_FALSE(check_pace({.every = UINT64_MAX, .widest = UINT64_MAX}, 8).ok());
  EXPECT_FALSE(check_pace({.k_min = 9}, 8).ok());
  EXPECT_FALSE(check_pace({.failures = UINT64_MAX}, 8).ok());
  EXPECT_FALSE(check_pace({.seen_ns = -1}, 8).ok());
  EXPECT_FALSE(check_pace({.halved = 64}, 8).ok());
}

}  // namespace
}  // namespace moetrain
