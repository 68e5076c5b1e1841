// The restore planner, against arithmetic on single bytes.
#include "ckptd/restore/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>

namespace ckptd {
namespace {

using testing::HasSubstr;

// Memory has some fragments, segments have all of them.
void set_places(RestoreOracle& oracle,
                std::function<bool(const ckpt::SnapshotKey&, const FragmentPlace&)> in_memory) {
  oracle.places.first = [in_memory = std::move(in_memory)](
                            const ckpt::SnapshotKey& snapshot, ckpt::UnitId,
                            const FragmentPlace& stored) -> std::optional<Place> {
    const bool cached = in_memory(snapshot, stored);
    return Place{cached ? SourceId::kMemory : SourceId::kSegment,
                 {stored.segment, stored.payload_offset}};
  };
  oracle.places.delta_base = [](SourceId, const FragmentPlace&) { return std::nullopt; };
  oracle.places.rank[SourceId::kSegment] = 1;
}

// Versions of units in lists, newest first; some fragments in memory.
struct Shelf {
  std::map<ckpt::UnitId, std::vector<UnitVersion>> versions;
  std::set<uint64_t> cached;  // payload offsets

  RestoreOracle oracle() const {
    RestoreOracle oracle;
    oracle.newest_version =
        [this](ckpt::UnitId unit,
               const std::optional<ckpt::SnapshotKey>& before) -> std::optional<UnitVersion> {
      const auto found = versions.find(unit);
      if (found == versions.end()) return std::nullopt;
      for (const UnitVersion& version : found->second) {
        if (!before || version.snapshot.step < before->step) return version;
      }
      return std::nullopt;
    };
    set_places(oracle, [this](const ckpt::SnapshotKey&, const FragmentPlace& stored) {
      return cached.contains(stored.payload_offset);
    });
    oracle.run_name = "tiny";
    oracle.unit_name = [](ckpt::UnitId unit) { return fmt::format("u{}", unit); };
    return oracle;
  }
};

UnitVersion make_version(ckpt::UnitId unit, ckpt::Step step, uint64_t bytes,
                         std::mt19937_64& random) {
  UnitVersion version;
  version.unit = unit;
  version.snapshot = {.run = 1, .lineage = 1, .step = step};
  version.bytes = bytes;
  for (uint64_t offset = 0; offset < bytes;) {
    const uint64_t length = std::min<uint64_t>(bytes - offset, 1 + random() % 40);
    version.fragments.push_back({.offset = offset,
                                 .length = length,
                                 .segment = 1 + random() % 3,
                                 .payload_offset = random() % 1'000'000});
    offset += length;
  }
  return version;
}

RestoreRequest request_for(std::vector<ckpt::UnitRange> wants) {
  return {1, {1, 30}, std::move(wants), false};
}

TEST(PlanRestoreTest, ReadsWantedBytesOnceMemoryFirst) {
  for (uint64_t round = 0; round < 200; ++round) {
    const uint64_t seed =
        static_cast<uint64_t>(testing::UnitTest::GetInstance()->random_seed()) * 1000 + round;
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed);
    Shelf shelf;
    for (ckpt::UnitId unit = 0; unit < 3; ++unit) {
      shelf.versions[unit] = {make_version(unit, 20, 1 + random() % 300, random)};
      for (const FragmentPlace& place : shelf.versions[unit][0].fragments) {
        if (random() % 3 == 0) shelf.cached.insert(place.payload_offset);
      }
    }
    std::vector<ckpt::UnitRange> wants;
    for (uint64_t i = 1 + random() % 6; i > 0; --i) {
      const auto unit = static_cast<ckpt::UnitId>(random() % 3);
      const uint64_t bytes = shelf.versions[unit][0].bytes;
      const uint64_t from = random() % bytes;
      wants.push_back({unit, from, random() % (bytes - from + 1)});
    }
    const auto plan = plan_restore(request_for(wants), shelf.oracle());
    ASSERT_TRUE(plan.ok()) << plan.error().message;
    // Each wanted byte comes from exactly one read of the fragment that holds the byte.
    std::map<std::pair<size_t, uint64_t>, int> times;
    for (const PlannedRead& read : plan->reads) {
      EXPECT_GT(read.part.length, 0u);
      EXPECT_GE(read.part.offset, read.stored.offset);
      EXPECT_LE(read.part.offset + read.part.length, read.stored.offset + read.stored.length);
      EXPECT_EQ(read.place.source == SourceId::kMemory,
                shelf.cached.contains(read.stored.payload_offset));
      for (uint64_t i = 0; i < read.part.length; ++i) ++times[{read.want, read.part.offset + i}];
    }
    uint64_t wanted = 0;
    for (size_t want = 0; want < wants.size(); ++want) {
      wanted += wants[want].length;
      for (uint64_t i = 0; i < wants[want].length; ++i) {
        ASSERT_EQ((times[{want, wants[want].offset + i}]), 1);
      }
    }
    EXPECT_EQ(times.size(), wanted);
    const auto order = [](const PlannedRead& read) {
      return std::tuple(read.place.source != SourceId::kMemory, read.stored.segment,
                        read.stored.payload_offset);
    };
    for (size_t i = 1; i < plan->reads.size(); ++i) {
      EXPECT_LE(order(plan->reads[i - 1]), order(plan->reads[i]));
    }
  }
}

TEST(PlanRestoreTest, FragmentOfTwoWantsCountsOnce) {
  Shelf shelf;
  shelf.versions[0] = {{.unit = 0,
                        .snapshot = {.run = 1, .lineage = 1, .step = 20},
                        .bytes = 100,
                        .fragments = {{.offset = 0, .length = 100, .segment = 1}}}};
  const auto plan = plan_restore(request_for({{0, 0, 10}, {0, 50, 10}}), shelf.oracle());
  EXPECT_EQ(plan->reads.size(), 2u);
  EXPECT_EQ(plan->bytes[SourceId::kSegment], 100u);
  EXPECT_EQ(plan->bytes[SourceId::kMemory], 0u);
}

TEST(PlanRestoreTest, FallbackTakesAllWantsOfTheUnit) {
  std::mt19937_64 random(1);
  Shelf shelf;
  shelf.versions[0] = {make_version(0, 20, 100, random), make_version(0, 15, 100, random),
                       make_version(0, 10, 100, random)};
  shelf.versions[1] = {make_version(1, 20, 50, random)};
  const RestoreRequest request = request_for({{0, 0, 10}, {1, 0, 50}, {0, 90, 10}});
  const auto first = plan_fallback(request, shelf.oracle(), 0, {.step = 20}, "segment 3: EIO", {});
  ASSERT_TRUE(first.ok());
  EXPECT_THAT(first->wants, testing::ElementsAre(0, 2));
  EXPECT_EQ(first->version.snapshot.step, 15u);
  EXPECT_EQ(first->version.note, "unit u0: step 15 instead of 20: segment 3: EIO");
  for (const PlannedRead& read : first->reads) EXPECT_EQ(read.snapshot.step, 15u);
  const auto second = plan_fallback(request, shelf.oracle(), 0, {.step = 15}, "again", {});
  EXPECT_EQ(second->version.note, "unit u0: step 10 instead of 20: again");
  const auto none = plan_fallback(request, shelf.oracle(), 0, {.step = 10}, "and again", {});
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().message,
            "run tiny step 30 unit u0: its version is of step 20: and again; the view has no older "
            "version of it");
  EXPECT_EQ(none.error().code, ckpt::ErrorCode::kCorrupt);
}

// A place that failed is not read again, unless memory has its bytes.
TEST(PlanRestoreTest, FallbackSkipsVersionsThatShareFailedPlaces) {
  const auto version = [](ckpt::Step step, uint64_t payload_offset) {
    return UnitVersion{
        .unit = 0,
        .snapshot = {.run = 1, .lineage = 1, .step = step},
        .bytes = 100,
        .fragments = {
            {.offset = 0, .length = 50, .segment = 1},
            {.offset = 50, .length = 50, .segment = 1, .payload_offset = payload_offset}}};
  };
  Shelf shelf;
  shelf.versions[0] = {version(20, 4096), version(15, 4096), version(10, 4096), version(5, 8192)};
  const RestoreRequest request = request_for({{0, 60, 10}});
  const auto on_disk = [](uint64_t offset) { return Place{SourceId::kSegment, {1, offset}}; };
  const FailedPlaces failed = {on_disk(4096)};
  const auto older = plan_fallback(request, shelf.oracle(), 0, {.step = 20}, "EIO", failed);
  ASSERT_TRUE(older.ok());
  EXPECT_EQ(older->version.note, "unit u0: step 5 instead of 20: EIO");
  const auto elsewhere = plan_fallback(request, shelf.oracle(), 0, {.step = 20}, "EIO",
                                       {Place{SourceId::kSegment, {2, 4096}}});
  EXPECT_EQ(elsewhere->version.snapshot.step, 15u);
  const auto unread =
      plan_fallback(request_for({{0, 0, 50}}), shelf.oracle(), 0, {.step = 20}, "EIO", failed);
  EXPECT_EQ(unread->version.snapshot.step, 15u);
  RestoreOracle in_memory = shelf.oracle();
  set_places(in_memory, [](const ckpt::SnapshotKey& snapshot, const FragmentPlace&) {
    return snapshot.step == 10;
  });
  EXPECT_EQ(
      plan_fallback(request, in_memory, 0, {.step = 20}, "EIO", failed)->version.snapshot.step,
      10u);
  const auto none = plan_fallback(request, shelf.oracle(), 0, {.step = 20}, "EIO",
                                  {on_disk(4096), on_disk(8192)});
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(
      none.error().message,
      "run tiny step 30 unit u0: its version is of step 20: EIO; the view has no older version "
      "of it");
}

TEST(PlanRestoreTest, AFragmentInNoSourceIsUnavailable) {
  std::mt19937_64 random(1);
  Shelf shelf;
  shelf.versions[0] = {make_version(0, 20, 100, random), make_version(0, 15, 100, random)};
  RestoreOracle oracle = shelf.oracle();
  oracle.places.first = [](const ckpt::SnapshotKey& snapshot, ckpt::UnitId, const FragmentPlace&) {
    return snapshot.step == 20 ? std::nullopt : std::optional(Place{});
  };
  const RestoreRequest request = request_for({{0, 0, 100}});
  const auto plan = plan_restore(request, oracle);
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.error().code, ckpt::ErrorCode::kUnavailable);
  EXPECT_THAT(plan.error().message, HasSubstr("run tiny step 20 unit u0: no source has its"));
  EXPECT_EQ(plan_fallback(request, oracle, 0, {.step = 25}, "EIO", {})->version.snapshot.step, 15u)
      << "passes over versions that no source has";
}

TEST(PlanRestoreTest, RefusesOverflowingRanges) {
  std::mt19937_64 random(1);
  Shelf shelf;
  shelf.versions[0] = {make_version(0, 20, 100, random)};
  for (const ckpt::UnitRange& range : std::vector<ckpt::UnitRange>{
           {0, 101, 0}, {0, 100, 1}, {0, 1, 100}, {0, 1, ~uint64_t{0}}, {0, ~uint64_t{0}, 1}}) {
    const auto plan = plan_restore(request_for({range}), shelf.oracle());
    ASSERT_FALSE(plan.ok());
    EXPECT_THAT(plan.error().message, HasSubstr("run tiny step 30 unit u0"));
  }
}

}  // namespace
}  // namespace ckptd
