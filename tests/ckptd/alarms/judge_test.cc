#include "ckptd/alarms/judge.h"

#include <gtest/gtest.h>

namespace ckptd {
namespace {

using ckpt::Alarm;
using ckpt::fb::AlarmKind;

// Unit 0 is dense; 1 and 2 are weights and optimizer of expert 0, 3 and 4 of expert 1.
class JudgeTest : public testing::Test {
 protected:
  JudgeTest() : units_(5), newest_(5) {
    for (uint32_t unit = 1; unit < 5; ++unit) {
      units_[unit].layer = 0;
      units_[unit].expert = (unit - 1) / 2;
    }
    for (auto& newest : newest_) newest = UnitSum{1, 10, 0xaa};
    facts_.step = 20;
  }
  std::vector<Alarm> judged() {
    const auto tokens_at = [&](ViewPoint commit) {
      ++asked_;
      EXPECT_EQ(commit, (ViewPoint{1, 10}));
      return tokens_then_;
    };
    return judge(facts_, units_, newest_, tokens_at).alarms.alarms;
  }
  std::vector<ckpt::UnitSpec> units_;
  NewestVersions newest_;
  SnapshotFacts facts_;
  ckpt::ExpertTokenCounts tokens_then_;
  int asked_ = 0;
};

TEST_F(JudgeTest, RaisesNoAlarmForChangedUnits) {
  facts_.saved = {{0, 0xbb}, {1, 0xbb}};
  EXPECT_TRUE(judged().empty());
  EXPECT_EQ(asked_, 0);
}

TEST_F(JudgeTest, NotFiniteValuesRaiseAlarmsWithoutHistory) {
  facts_.saved = {{0, 0xaa}};
  facts_.not_finite = {{0, 3}};
  newest_.clear();  // the index cannot be read
  EXPECT_EQ(judged(), (std::vector<Alarm>{{0, AlarmKind::NotFinite, 3}}));
}

TEST_F(JudgeTest, EqualChecksumIsUnchangedUnlessExpertWasIdle) {
  facts_.saved = {{0, 0xaa}, {1, 0xaa}, {2, 0xbb}, {3, 0xaa}};
  const std::vector<Alarm> all = {
      {0, AlarmKind::Unchanged, 10}, {1, AlarmKind::Unchanged, 10}, {3, AlarmKind::Unchanged, 10}};
  EXPECT_EQ(judged(), all) << "without counts nothing is known to be idle";
  facts_.tokens = {{0, 0, 70}, {0, 1, 90}};
  EXPECT_EQ(judged(), all) << "the older commit has none";
  tokens_then_ = {{0, 0, 70}, {0, 1, 89}};
  asked_ = 0;
  EXPECT_EQ(judged(), (std::vector<Alarm>{all[0], all[2]})) << "expert 0 got no token";
  EXPECT_EQ(asked_, 1) << "once per commit";
}

TEST_F(JudgeTest, RolledBackExpertMayEqualOlderVersion) {
  facts_.saved = {{1, 0xaa}, {3, 0xaa}};
  tokens_then_ = {{0, 0, 70, 5}, {0, 1, 90, 5}};
  facts_.tokens = {{0, 0, 100, 35}, {0, 1, 120, 34}};
  EXPECT_EQ(judged(), (std::vector<Alarm>{{3, AlarmKind::Unchanged, 10}}))
      << "expert 1 got a token after its older version was put back";
}

TEST_F(JudgeTest, ConstantUnitMayStayUnchanged) {
  facts_.saved = {{0, 0xaa}, {1, 0xaa}};
  facts_.constant = [](ckpt::UnitId unit) { return unit == 0; };
  facts_.not_finite = {{0, 1}};
  EXPECT_EQ(judged(),
            (std::vector<Alarm>{{0, AlarmKind::NotFinite, 1}, {1, AlarmKind::Unchanged, 10}}));
}

TEST_F(JudgeTest, LateCommitOfOlderStepRaisesNoAlarm) {
  facts_.saved = {{0, 0xaa}};
  facts_.step = 10;  // as when an older snapshot is committed after a newer one
  EXPECT_TRUE(judged().empty());
}

TEST_F(JudgeTest, ExpertsLeftOutTooLongAreStale) {
  facts_.saved = {{0, 0xbb}, {3, 0xbb}, {4, 0xbb}};
  facts_.staleness_max = 10;
  EXPECT_TRUE(judged().empty()) << "exactly at the bound";
  facts_.step = 21;
  EXPECT_EQ(judged(), (std::vector<Alarm>{{1, AlarmKind::Stale, 10}, {2, AlarmKind::Stale, 10}}));
  newest_[1].reset();  // never saved: since the lineage began
  facts_.lineage_began = 15;
  EXPECT_EQ(judged(), (std::vector<Alarm>{{2, AlarmKind::Stale, 10}}));
  facts_.lineage_began = 0;
  EXPECT_EQ(judged()[0], (Alarm{1, AlarmKind::Stale, 0}));
  facts_.staleness_max = 0;
  EXPECT_TRUE(judged().empty()) << "any age";
}

TEST_F(JudgeTest, AlarmListIsBoundedAndCountsOmittedAlarms) {
  facts_.saved.clear();
  for (ckpt::UnitId unit = 0; unit < ckpt::kAlarmsListedMax + 5; ++unit) {
    facts_.not_finite[unit] = 1;
  }
  const Judgement judgement = judge(facts_, units_, {}, {});
  const ckpt::AlarmList& list = judgement.alarms;
  EXPECT_EQ(judgement.raised.at(static_cast<size_t>(AlarmKind::NotFinite)),
            ckpt::kAlarmsListedMax + 5)
      << "all of them are counted";
  EXPECT_EQ(judgement.raised.at(static_cast<size_t>(AlarmKind::Unchanged)), 0u);
  EXPECT_EQ(list.alarms.size(), ckpt::kAlarmsListedMax);
  EXPECT_EQ(list.left_out, 5u);
  const std::string text = describe(list, 20, units_);
  EXPECT_NE(text.find("; and 4097 more"), std::string::npos) << text;
}

}  // namespace
}  // namespace ckptd
