#include "ckptd/snapshots/shared_versions.h"

#include <gmock/gmock.h>

#include "tests/ckptd/catalog/records.h"

namespace ckptd {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// The open snapshot that references them.
constexpr ckpt::SnapshotKey kOpen{.run = kTestRun, .lineage = 1, .epoch = 9, .step = 8};

class SharedVersionsTest : public testing::Test {
 protected:
  SharedVersionsTest() {
    apply_all(catalog_, {store_opened(), run_created(), units_registered(units_),
                         lineage_opened(1, 0, 0), committed(commit_, units_)});
  }
  UnitVersion version(ckpt::UnitId unit) const {
    return catalog_.newest_version(kTestRun, unit, commit_.point, {}).value();
  }
  bool hold(ckpt::UnitId unit) {
    const UnitVersion held = version(unit);
    return shared_.hold(catalog_, held, held.fragments);
  }
  ExtentBegin place() const {
    const FragmentPlace first = version(0).fragments.front();
    return {first.segment, first.extent_offset};
  }

  const std::vector<ckpt::UnitSpec> units_ = test_units(1, 1);  // weights, optimizer, trainer
  const CommitSpec commit_{.point = {1, 4}, .units = all_units(units_)};
  Catalog catalog_{make_memory_store()};
  SharedVersions shared_;
};

TEST_F(SharedVersionsTest, HoldsVersionWithItsExtents) {
  ASSERT_TRUE(hold(0));
  EXPECT_THAT(shared_.held(), ElementsAre(SharedVersions::Version{commit_.point, 0}));
  const auto headers = shared_.headers({.low = 11, .high = 12}, kOpen, {place()});
  ASSERT_THAT(headers, SizeIs(1));
  EXPECT_EQ(headers[0].expected.snapshot, version(0).snapshot);
  EXPECT_EQ(headers[0].expected.offset, place().second);
  EXPECT_EQ(headers[0].header_bytes, 4096u);
}

TEST_F(SharedVersionsTest, HoldsNoPlaceOutsideTheCommitsExtents) {
  UnitVersion moved = version(0);
  moved.fragments.front().extent_offset += 4096;
  EXPECT_FALSE(shared_.hold(catalog_, moved, moved.fragments));
  EXPECT_THAT(shared_.held(), IsEmpty());
}

TEST_F(SharedVersionsTest, HoldsNoDeltaWithoutItsBaseExtent) {
  UnitVersion delta = version(0);
  delta.fragments.front().base = BasePlace{.segment = 77, .extent_offset = 4096};
  EXPECT_FALSE(shared_.hold(catalog_, delta, delta.fragments));
}

TEST_F(SharedVersionsTest, ListsNoExtentThatIsOnlyHeld) {
  ASSERT_TRUE(hold(0));
  std::vector<WrittenExtent> extents(1);
  shared_.list_extents(extents);
  EXPECT_THAT(extents, SizeIs(1));
}

TEST_F(SharedVersionsTest, ListsSharedPiecesInByteOrder) {
  ASSERT_TRUE(hold(0));
  EXPECT_FALSE(shared_.shares(place()));
  const UnitVersion shared = version(0);
  ASSERT_THAT(shared.fragments, SizeIs(2));
  shared_.share(0, shared.fragments[1]);
  shared_.share(0, shared.fragments[0]);
  EXPECT_TRUE(shared_.shares(place()));
  std::vector<WrittenExtent> extents;
  shared_.list_extents(extents);
  ASSERT_THAT(extents, SizeIs(1));
  EXPECT_EQ(ckpt::writer_of(extents[0], kOpen), shared.snapshot);
  ASSERT_THAT(extents[0].fragments, SizeIs(2));
  EXPECT_EQ(extents[0].fragments[0].payload_offset, 0u) << "from the start of the payload";
  EXPECT_EQ(extents[0].fragments[0].crc32c, shared.fragments[0].crc32c);
  EXPECT_EQ(extents[0].fragments[1].crc32c, shared.fragments[1].crc32c);
}

TEST_F(SharedVersionsTest, ListsTheExtentsOfBases) {
  ASSERT_TRUE(hold(0));
  const FragmentPlace base = version(0).fragments.front();
  shared_.note_base(0, base.offset,
                    {.crc32c = base.crc32c,
                     .segment = base.segment,
                     .extent_offset = base.extent_offset,
                     .payload_offset = base.payload_offset});
  WrittenExtent own;
  own.fragments = {{.unit = 0,
                    .codec = static_cast<uint32_t>(ckpt::Codec::kDeltaZstd),
                    .offset = base.offset,
                    .length = base.length}};
  std::vector<WrittenExtent> extents = {own};
  shared_.list_extents(extents);
  ASSERT_THAT(extents, SizeIs(2));
  EXPECT_EQ(extents[1].offset, base.extent_offset);
  EXPECT_THAT(extents[1].fragments, IsEmpty());
  const std::pair<ckpt::UnitId, uint64_t> piece{0, base.offset};
  EXPECT_EQ(shared_.bases().at(piece).payload_offset, 0u) << "from the start of the payload";
}

TEST_F(SharedVersionsTest, ListsNoBaseOfWholePiece) {
  ASSERT_TRUE(hold(0));
  const FragmentPlace base = version(0).fragments.front();
  shared_.note_base(0, base.offset, {.segment = base.segment, .extent_offset = base.extent_offset});
  std::vector<WrittenExtent> extents;
  shared_.list_extents(extents);
  EXPECT_THAT(extents, IsEmpty());
}

}  // namespace
}  // namespace ckptd
