#include "ckptd/restore/served_versions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ckptd {
namespace {

using testing::ElementsAre;

constexpr ckpt::UnitId kServedUnit = 3;

ckpt::SnapshotKey snapshot_of(ckpt::Step step) {
  return {.run = 1, .lineage = 1, .epoch = 1, .step = step};
}
FallbackPlan fallback_to(ckpt::Step step) {
  return {.wants = {0, 2},
          .version = {.snapshot = snapshot_of(step), .note = "older", .memory_only = false},
          .reads = {}};
}

TEST(ServedVersions, FallbackReplacesTheSnapshotAndTheNote) {
  ServedVersions versions;
  versions.plan(kServedUnit, snapshot_of(25));
  EXPECT_TRUE(versions.is_served_from(kServedUnit, snapshot_of(25)));
  versions.change_source(kServedUnit, snapshot_of(25), {1}, [] { return "segment"; });
  versions.fall_back(kServedUnit, fallback_to(20));
  EXPECT_FALSE(versions.is_served_from(kServedUnit, snapshot_of(25)));
  EXPECT_TRUE(versions.is_served_from(kServedUnit, snapshot_of(20)));
  const std::vector<RestoreNote> notes = versions.take_notes();
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_EQ(notes[0].unit, kServedUnit);
  EXPECT_EQ(notes[0].note, "older");
  EXPECT_EQ(notes[0].snapshot, snapshot_of(20));
  EXPECT_THAT(notes[0].wants, ElementsAre(0, 2));
  EXPECT_TRUE(versions.take_notes().empty());
}

TEST(ServedVersions, ChangeOfSourceIsNotedOncePerWant) {
  ServedVersions versions;
  int texts = 0;
  const auto text = [&texts] { return "note " + std::to_string(++texts); };
  versions.change_source(kServedUnit, snapshot_of(25), {0, 1}, text);
  versions.change_source(kServedUnit, snapshot_of(25), {1, 2}, text);
  const std::vector<RestoreNote> notes = versions.take_notes();
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_EQ(notes[0].note, "note 1");
  EXPECT_THAT(notes[0].wants, ElementsAre(0, 1, 2));
  versions.change_source(kServedUnit, snapshot_of(25), {0, 1, 2}, text);
  EXPECT_TRUE(versions.take_notes().empty());
  EXPECT_EQ(texts, 1);
}

TEST(ServedVersions, FailuresOfAUnitAddUp) {
  ServedVersions versions;
  Place place{SourceId::kSegment, {1, 4096}};
  versions.add_failure(kServedUnit, place, "first");
  place.address.container = 2;
  const ServedVersions::Failures& both = versions.add_failure(kServedUnit, place, "second");
  EXPECT_EQ(both.reasons(), "first (and 1 failed read after it)");
  EXPECT_EQ(both.places, (FailedPlaces{{SourceId::kSegment, {1, 4096}}, place}));
  EXPECT_EQ(versions.add_failure(kServedUnit + 1, place, "other").reasons(), "other");
}

}  // namespace
}  // namespace ckptd
