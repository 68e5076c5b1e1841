// Growth in ingest: the same for all members, and written by the snapshot that brings it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ckptd/ingest/ingest.h"

namespace ckptd {
namespace {

using testing::HasSubstr;
using Units = std::vector<ckpt::UnitSpec>;

// Two ranks; the run has one unit, of which each rank has a half. Rank 0 has all of each new unit.
class IngestGrowthTest : public testing::Test {
 protected:
  static constexpr uint64_t kHalf = 500;
  const ckpt::SnapshotKey key_{.run = 7, .lineage = 1, .epoch = 3, .step = 5};
  Ingest ingest_;

  static ckpt::UnitSpec unit(const std::string& name, uint64_t bytes) {
    ckpt::UnitSpec spec;
    spec.name = name;
    spec.bytes = bytes;
    return spec;
  }
  static Units grown(const std::vector<std::string>& names, uint64_t bytes = 10) {
    Units units = {unit("trainer", 2 * kHalf)};
    for (const std::string& name : names) units.push_back(unit(name, bytes));
    return units;
  }
  struct Part {
    Units units;
    size_t known = 1;
    std::vector<ckpt::UnitId> plan = {};  // empty: all units
    std::vector<ckpt::UnitId> memory = {};
    std::vector<ckpt::UnitId> absent = {};
  };
  Ingest::Outcome begin(ckpt::Rank rank, Part part) {
    if (part.plan.empty()) {
      for (ckpt::UnitId id = 0; id < part.units.size(); ++id) part.plan.push_back(id);
    }
    ckpt::Plan plan{.units = part.plan, .fragments = {}, .memory_units = part.memory};
    for (const ckpt::UnitId id : part.plan) {
      if (id == 0) {
        for (const ckpt::Rank of : {0u, 1u}) plan.fragments.push_back({of, {0, of * kHalf, kHalf}});
      } else {
        plan.fragments.push_back({0, {id, 0, part.units[id].bytes}});
      }
    }
    Ingest::Begin one;
    one.snapshot = key_;
    one.run_name = "tiny";
    one.rank = rank;
    one.group_size = 2;
    one.units = plan.units;
    one.memory_units = plan.memory_units;
    for (const ckpt::PlannedFragment& fragment : plan.fragments) {
      if (fragment.rank == rank) one.fragments.push_back(fragment.range);
    }
    one.plan = plan_hash(plan);
    one.deadline = Time(1000);
    one.known_units = part.known;
    one.absent = part.absent;
    return ingest_.begin(one, std::make_shared<const Units>(part.units));
  }
  // The commit of what both ranks have begun.
  Ingest::CommitAction commit(const Units& units, const std::vector<ckpt::UnitId>& plan) {
    for (const ckpt::Rank rank : {0u, 1u}) {
      std::vector<ckpt::ExtentFragment> fragments;
      for (const ckpt::UnitId id : plan) {
        if (id == 0) fragments.push_back({.unit = 0, .offset = rank * kHalf, .length = kHalf});
        if (id != 0 && rank == 0) fragments.push_back({.unit = id, .length = units[id].bytes});
      }
      EXPECT_TRUE(ingest_.sealed(key_, rank, fragments).status.ok());
    }
    (void)ingest_.written(key_, {});
    const auto actions = ingest_.written(key_, {});
    EXPECT_EQ(actions.size(), 1u);
    return std::get<Ingest::CommitAction>(actions.at(0));
  }
  std::string refusal(Part zero, Part one) {
    const auto first = begin(0, std::move(zero));
    if (!first.status.ok()) return first.status.error().message;
    const auto second = begin(1, std::move(one));
    return second.status.ok() ? "" : second.status.error().message;
  }
};

TEST_F(IngestGrowthTest, CommitHasTheGrowth) {
  const Units units = grown({"a", "b"});
  ASSERT_EQ(refusal({units}, {units}), "");
  const Ingest::CommitAction action = commit(units, {0, 1, 2});
  EXPECT_EQ(action.first_grown, 1u);
  EXPECT_EQ(action.grown, Units(units.begin() + 1, units.end()));
  EXPECT_TRUE(action.full);
}

TEST_F(IngestGrowthTest, MemberMayKnowTheGrowthAlready) {
  const Units units = grown({"a"});
  ASSERT_EQ(refusal({units}, {.units = units, .known = 2}), "");
  EXPECT_EQ(commit(units, {0, 1}).grown.size(), 1u);
}

TEST_F(IngestGrowthTest, RankWithAnotherGrowthIsNamed) {
  EXPECT_THAT(refusal({grown({"a"})}, {grown({})}),
              HasSubstr("rank 0 grows the run by unit a, rank 1 does not"));
}

TEST_F(IngestGrowthTest, RankThatGrowsMoreIsNamed) {
  EXPECT_THAT(refusal({grown({"a"})}, {grown({"a", "b"})}),
              HasSubstr("rank 1 grows the run by unit b, rank 0 does not"));
}

TEST_F(IngestGrowthTest, RankWithAnotherNameIsNamed) {
  EXPECT_THAT(refusal({grown({"a"})}, {grown({"b"})}),
              HasSubstr("rank 1 grows the run by unit b, rank 0 does not"));
}

TEST_F(IngestGrowthTest, RankWithAnotherSizeIsNamed) {
  EXPECT_THAT(refusal({grown({"a"}, 10)}, {grown({"a"}, 11)}),
              HasSubstr("rank 1 grows the run by unit a with 11 bytes instead of 10, as rank 0"));
}

TEST_F(IngestGrowthTest, SnapshotMustHoldTheGrowth) {
  EXPECT_THAT(refusal({.units = grown({"a", "b"}), .plan = {0, 1}}, {grown({"a", "b"})}),
              HasSubstr("rank 0: unit b is new in the run, so the snapshot must write it"));
}

TEST_F(IngestGrowthTest, GrowthDoesNotStayInMemory) {
  EXPECT_THAT(refusal({.units = grown({"a"}), .memory = {1}}, {grown({"a"})}),
              HasSubstr("unit a is new in the run"));
}

TEST_F(IngestGrowthTest, FullSnapshotNeedsNoAbsentUnits) {
  const Units units = grown({"a", "b"});
  const Part part{.units = units, .known = 3, .plan = {0, 2}, .absent = {1}};
  ASSERT_EQ(refusal(part, part), "");
  EXPECT_TRUE(commit(units, {0, 2}).full);
}

TEST_F(IngestGrowthTest, UnitThatIsLeftOutMakesSnapshotPartial) {
  const Units units = grown({"a", "b"});
  const Part part{.units = units, .known = 3, .plan = {0, 2}};
  ASSERT_EQ(refusal(part, part), "");
  const Ingest::CommitAction action = commit(units, {0, 2});
  EXPECT_FALSE(action.full);
  EXPECT_TRUE(action.grown.empty());
}

}  // namespace
}  // namespace ckptd
