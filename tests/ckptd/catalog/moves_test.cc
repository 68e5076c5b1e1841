// Moved records: their effect on the catalog, and invalid records that are refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "ckptd/catalog/salvage.h"
#include "tests/ckptd/catalog/kv_fixture.h"
#include "tests/ckptd/catalog/records.h"

namespace ckptd {
namespace {

using ckpt::ErrorCode;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr ckpt::SegmentId kNewSegment = 9;

class MovesTest : public testing::Test {
 protected:
  void SetUp() override {
    must(store_opened());
    must(run_created());
    must(units_registered(units_));
    must(lineage_opened(1, 0, 0));
    must(committed({.point = {1, 1}, .units = all_units(units_), .full = true}, units_));
  }
  void must(const fb::RecordT& record) {
    const Status applied = catalog_.apply(next_++, record);
    ASSERT_TRUE(applied.ok()) << applied.error().message;
    records_.push_back(record);
  }
  // All that is left of the commit goes into one extent, each fragment in three quarters of it.
  fb::RecordT move_of(ViewPoint point, const Catalog& catalog) {
    const auto commit = catalog.record(kTestRun, point.lineage, point.step);
    EXPECT_TRUE(commit.has_value());
    fb::MovedT moved;
    moved.run = kTestRun;
    moved.lineage = point.lineage;
    moved.step = point.step;
    moved.epoch = commit->epoch;
    moved.attempt = commit->attempt;
    for (const auto& extent : commit->extents) {
      moved.from.emplace_back(extent->segment, extent->offset);
    }
    auto extent = std::make_unique<fb::ExtentT>(*commit->extents.at(0));
    extent->segment = kNewSegment;
    extent->offset = 4096 + 8192 * point.step;
    extent->header_crc32c = 77;
    uint64_t at = 0;
    for (const fb::Fragment& one : commit->fragments) {
      const auto number = static_cast<uint32_t>(moved.fragments.size());
      const uint64_t bytes = one.length() - one.length() / 4;
      const bool encoded = bytes < one.length();
      if (encoded) moved.encoded.emplace_back(number, 5, bytes);
      const auto codec = static_cast<uint32_t>(encoded ? ckpt::Codec::kZstd : ckpt::Codec::kNone);
      moved.fragments.emplace_back(one.unit(), 0, one.offset(), one.length(), at, one.crc32c(),
                                   codec);
      at += encoded ? bytes : one.length();
    }
    extent->payload_bytes = at;
    moved.extents.push_back(std::move(extent));
    return make_record(std::move(moved));
  }
  void refused(const fb::RecordT& record, const std::string& says) {
    const Status applied = catalog_.apply(next_, record);
    ASSERT_FALSE(applied.ok()) << says;
    EXPECT_EQ(applied.error().code, ErrorCode::kCorrupt);
    EXPECT_THAT(applied.error().message, HasSubstr(says));
    EXPECT_TRUE(catalog_.health().ok());
  }

  // A move of the first commit, spoiled.
  void spoiled(const std::function<void(fb::MovedT&)>& spoil, const std::string& says) {
    fb::RecordT record = move_of({1, 1}, catalog_);
    spoil(*record.body.AsMoved());
    refused(record, says);
  }

  const std::vector<ckpt::UnitSpec> units_ = test_units(1, 1);  // weights, optimizer, trainer
  Catalog catalog_{make_memory_store()};
  std::vector<fb::RecordT> records_;
  uint64_t next_ = 1;
};

TEST_F(MovesTest, VersionsHaveNewPlacesAndOldAreDead) {
  const auto before = catalog_.record(kTestRun, 1, 1);
  const auto info = catalog_.commit(kTestRun, 1, 1);
  must(move_of({1, 1}, catalog_));
  const auto after = catalog_.record(kTestRun, 1, 1);
  ASSERT_TRUE(after.has_value());
  ASSERT_EQ(after->extents.size(), 1u);
  EXPECT_EQ(after->extents[0]->segment, kNewSegment);
  EXPECT_EQ(after->encoded.size(), after->fragments.size());
  for (ckpt::UnitId unit = 0; unit < units_.size(); ++unit) {
    const auto version = catalog_.newest_version(kTestRun, unit, {1, 1}, std::nullopt);
    ASSERT_TRUE(version.has_value());
    for (const FragmentPlace& place : version->fragments) {
      EXPECT_EQ(place.segment, kNewSegment);
      EXPECT_LT(place.stored_bytes(), place.length);
    }
  }
  // The commit is otherwise unchanged.
  auto now = catalog_.commit(kTestRun, 1, 1);
  EXPECT_EQ(now->moved, next_ - 1);
  now->moved = 0;
  EXPECT_EQ(now, info);
  EXPECT_EQ(catalog_.live_extents(1).value(), 0u);
  EXPECT_EQ(catalog_.live_extents(kNewSegment).value(), 1u);
  const auto dead = catalog_.dead_space(kTestRun);
  ASSERT_EQ(dead.size(), 1u);
  EXPECT_EQ(dead[0].sequence, next_ - 1);
  EXPECT_THAT(dead[0].ranges, ElementsAre(SpaceRange{1, before->extents[0]->offset, 8192}));
  // The journal alone gives the same record.
  Catalog again(make_memory_store());
  apply_all(again, records_);
  EXPECT_EQ(ckpt::encode_record(make_record(*again.record(kTestRun, 1, 1))),
            ckpt::encode_record(make_record(*after)));
  // A moved commit is deleted like any other.
  must(deleted({1, 1}, "x"));
  EXPECT_EQ(catalog_.live_extents(kNewSegment).value(), 0u);
  EXPECT_EQ(catalog_.dead_space(kTestRun).back().ranges.size(), 1u);
}

TEST_F(MovesTest, RemainingUnitsOfDeletedCommitMove) {
  must(deleted({1, 1}, "x", {0, 2}));
  must(move_of({1, 1}, catalog_));
  EXPECT_EQ(catalog_.record(kTestRun, 1, 1)->fragments.size(), 4u);
  EXPECT_EQ(catalog_.live_extents(1).value(), 0u);
  must(deleted({1, 1}, "x", {2}));
  EXPECT_EQ(catalog_.live_extents(kNewSegment).value(), 1u);
  must(deleted({1, 1}, "x"));
  EXPECT_EQ(catalog_.live_extents(kNewSegment).value(), 0u);
  EXPECT_THAT(catalog_.dead_space(kTestRun).back().ranges,
              ElementsAre(SpaceRange{kNewSegment, 4096 + 8192, 8192}));
  EXPECT_TRUE(catalog_.health().ok());
}

TEST_F(MovesTest, RefusesToMoveSharedExtents) {
  fb::RecordT sharing = committed({.point = {1, 2}, .units = {0}}, units_);
  fb::CommittedT& commit = *sharing.body.AsCommitted();
  const auto other = catalog_.record(kTestRun, 1, 1);
  commit.extents[0] = std::make_unique<fb::ExtentT>(*other->extents[0]);
  commit.extents[0]->lineage = 1;
  commit.extents[0]->epoch = other->epoch;
  commit.extents[0]->step = 1;
  commit.fragments.assign(other->fragments.begin(), other->fragments.begin() + 2);
  const fb::RecordT move = move_of({1, 1}, catalog_);
  must(sharing);
  refused(move, "it moves bytes that another commit has, too");
  refused(move_of({1, 2}, catalog_), "it moves bytes that another commit has, too");
  must(deleted({1, 2}, "x"));
  must(move);
}

TEST_F(MovesTest, RefusesInvalidExtents) {
  spoiled([](fb::MovedT& moved) { moved.run = 99; }, "run number 99 was never created");
  spoiled([](fb::MovedT& moved) { moved.step = 2; }, "it moves bytes of no commit");
  spoiled([](fb::MovedT& moved) { moved.attempt = 1; }, "it moves bytes of no commit");
  spoiled([](fb::MovedT& moved) { moved.epoch = 8; }, "it moves bytes of no commit");
  spoiled([](fb::MovedT& moved) { moved.from.clear(); }, "extents that it does not have");
  spoiled([](fb::MovedT& moved) { moved.from.push_back(moved.from[0]); },
          "extents that it does not have");
  spoiled([](fb::MovedT& moved) { moved.from.emplace_back(5, 4096); },
          "extents that it does not have");
  spoiled([](fb::MovedT& moved) { moved.extents[0]->lineage = 1; }, "to where others lie");
  spoiled(
      [](fb::MovedT& moved) {
        moved.extents[0]->segment = moved.from[0].segment();
        moved.extents[0]->offset = moved.from[0].offset();
      },
      "to where others lie");
  spoiled(
      [](fb::MovedT& moved) {
        moved.extents.push_back(std::make_unique<fb::ExtentT>(*moved.extents[0]));
      },
      "to where others lie");
  spoiled([](fb::MovedT& moved) { moved.extents.clear(); }, "unknown extent number 0");
  EXPECT_THAT(catalog_.dead_space(kTestRun), IsEmpty());
  must(move_of({1, 1}, catalog_));
  must(commit_damaged({1, 1}, "its headers do not hold"));
  spoiled([](fb::MovedT&) {}, "it moves bytes of no commit");
}

TEST_F(MovesTest, RefusesInvalidFragments) {
  const auto first = [](fb::MovedT& moved, uint32_t unit, uint32_t extent, uint64_t at,
                        uint32_t codec, uint32_t crc32c) {
    const fb::Fragment& of = moved.fragments.at(0);
    moved.fragments[0] = fb::Fragment(unit, extent, of.offset(), of.length(), at, crc32c, codec);
  };
  spoiled([](fb::MovedT& moved) { moved.fragments.pop_back(); }, "encoded bytes of a fragment");
  spoiled(
      [](fb::MovedT& moved) {
        moved.fragments.pop_back();
        moved.encoded.pop_back();
      },
      "no fragment covers bytes");
  spoiled(
      [](fb::MovedT& moved) {
        moved.fragments.clear();
        moved.encoded.clear();
      },
      "no fragment covers bytes");
  spoiled([](fb::MovedT& moved) { moved.fragments[1] = moved.fragments[0]; }, "do not meet");
  spoiled([&](fb::MovedT& moved) { first(moved, 99, 0, 0, 1, 0); }, "unknown unit number 99");
  spoiled([&](fb::MovedT& moved) { first(moved, 0, 7, 0, 1, 0); }, "unknown extent number 7");
  spoiled([&](fb::MovedT& moved) { first(moved, 0, 0, 0, 99, 0); }, "unknown codec 99");
  spoiled([&](fb::MovedT& moved) { first(moved, 0, 0, 0, 5, 0); }, "a delta without a base");
  spoiled([&](fb::MovedT& moved) { first(moved, 0, 0, 0, 1, 0); }, "bytes that are others then");
  for (const uint64_t at : {uint64_t{1} << 40, ~uint64_t{0}}) {
    spoiled([&](fb::MovedT& moved) { first(moved, 0, 0, at, 1, moved.fragments[0].crc32c()); },
            "outside its extent's payload");
  }
  EXPECT_THAT(catalog_.dead_space(kTestRun), IsEmpty());
  must(move_of({1, 1}, catalog_));
}

// A move must not name units that the commit lacks, or has in other extents.
TEST_F(MovesTest, RefusesUnitsThatTheCommitLacks) {
  must(committed({.point = {1, 2}, .units = {0}}, units_));
  fb::RecordT record = move_of({1, 2}, catalog_);
  fb::MovedT& moved = *record.body.AsMoved();
  const fb::RecordT other = move_of({1, 1}, catalog_);
  moved.fragments.push_back(other.body.AsMoved()->fragments.back());  // of unit 2
  moved.encoded.emplace_back(static_cast<uint32_t>(moved.fragments.size() - 1), 5,
                             other.body.AsMoved()->encoded.back().bytes());
  moved.extents[0]->payload_bytes = 4096;
  refused(record, "it moves units that it does not have");
}

// A catalog that is ahead of its journal knows where the bytes are.
TEST_F(MovesTest, SalvageRestoresMoveLostByTheJournal) {
  const uint64_t last = next_ - 1;
  Catalog behind(make_memory_store());
  apply_all(behind, records_);
  must(move_of({1, 1}, catalog_));
  must(deleted({1, 1}, "x", {1}));
  const auto salvage = take_salvage(catalog_, last);
  ASSERT_TRUE(salvage.ok());
  ASSERT_EQ(salvage->moved.size(), 1u);
  EXPECT_THAT(salvage->commits, IsEmpty());
  uint64_t next = last + 1;
  for (const fb::RecordT& record : missing_after_commits(*salvage, behind, 1)) {
    ASSERT_TRUE(behind.apply(next++, record).ok());
  }
  const auto move = missing_move(salvage->moved[0], behind, 1);
  ASSERT_TRUE(move.has_value());
  const Status applied = behind.apply(next, *move);
  ASSERT_TRUE(applied.ok()) << applied.error().message;
  EXPECT_EQ(ckpt::encode_record(make_record(*behind.record(kTestRun, 1, 1))),
            ckpt::encode_record(make_record(*catalog_.record(kTestRun, 1, 1))));
  EXPECT_FALSE(missing_move(salvage->moved[0], behind, 1).has_value()) << "it is there now";
}

}  // namespace
}  // namespace ckptd
