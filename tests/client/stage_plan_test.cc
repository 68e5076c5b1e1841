// Places are joined to chunks, and chunks are packed in groups. No device, no daemon.
#include "client/src/cuda/stage_plan.h"

#include <gtest/gtest.h>

#include <array>
#include <random>
#include <vector>

#include "formats/arena.h"
#include "formats/base/checked.h"
#include "formats/base/crc32c.h"

namespace ckpt::lib {
namespace {

constexpr uint64_t kChunkBytes = 64 << 10;

class StagePlanTest : public testing::Test {
 protected:
  void add(UnitId unit, uint64_t at, uint64_t bytes) {
    const std::array<DeviceBytes, 2> sources{
        {{state_.data() + at, bytes / 2}, {state_.data() + at + bytes / 2, bytes - bytes / 2}}};
    plan_.add({.unit = unit, .to = {arena_.data() + at, bytes}, .id = ++id_}, sources);
  }
  // Adds places of sizes that room() allows, with and without gaps.
  void add_at_random(std::mt19937_64& random) {
    for (uint64_t at = 0; at + 2 * kChunkBytes < arena_.size();) {
      const uint64_t bytes = 1 + random() % std::min<uint64_t>(plan_.room(), 30'000);
      add(static_cast<UnitId>(random() % 7), at, bytes);
      at += bytes + (random() % 3 == 0 ? random() % kBlockBytes : 0);
      if (random() % 10 == 0) plan_.close();
    }
  }
  // Adds places with sources of any lengths to `plan`. Returns the number of bytes.
  uint64_t add_cut_at_random(StagePlan& plan, std::mt19937_64& random) {
    uint64_t all = 0;
    for (uint64_t at = 0; at + 2 * kChunkBytes < arena_.size();) {
      const uint64_t bytes = 1 + random() % std::min<uint64_t>(plan.room(), 60'000);
      std::vector<DeviceBytes> sources;
      for (uint64_t used = 0; used < bytes;) {
        const uint64_t wanted = random() % 2 == 0 ? 1 + random() % 100 : random() % 20'000;
        const uint64_t now = std::min(wanted, bytes - used);
        sources.push_back({.from = state_.data() + at + used, .bytes = now});
        used += now;
      }
      plan.add({.unit = 0, .to = {arena_.data() + at, bytes}, .id = ++id_}, sources);
      all += bytes;
      at += bytes + (random() % 3 == 0 ? random() % kBlockBytes : 0);
    }
    return all;
  }
  // Runs the lists on the CPU, as the device's kernels do.
  static void run_kernels(const PackLists& lists, std::vector<std::byte>& slots,
                          std::vector<uint32_t>& gathered, std::vector<uint32_t>& runs) {
    gathered.resize(lists.ranges.size());
    kernels::pack(lists.pieces, lists.ranges, slots.data(), gathered.data());
    for (const kernels::ChecksumRun& run : lists.runs) {
      runs.push_back(base::crc32c({run.from, run.bytes}));
    }
  }
  uint64_t offset_of(const StagedPlace& place, const StageChunk& chunk) const {
    return static_cast<uint64_t>(place.to.data() - chunk.to);
  }
  std::vector<std::byte> arena_{1 << 20};
  std::vector<std::byte> state_{arena_.size()};
  StagePlan plan_{kChunkBytes};
  uint64_t id_ = 0;
};

TEST_F(StagePlanTest, JoinsNearPlacesAndSplitsDistantPlaces) {
  EXPECT_EQ(plan_.room(), kChunkBytes);
  add(0, 0, 100);
  add(1, 128, 100);            // a gap
  add(2, 4096, 60'000);        // still one copy
  add(3, 65'536, 100);         // would make the chunk too long
  add(4, 65'536 + 8192, 100);  // too far away
  add(5, 512, 10);             // lies before the others: another slab
  ASSERT_EQ(plan_.chunks().size(), 4u);
  EXPECT_EQ(plan_.chunks()[0].bytes, 64'096u);
  EXPECT_TRUE(plan_.chunks()[0].has_gaps);
  EXPECT_EQ(plan_.chunks()[0].places_end, 3u);
  EXPECT_FALSE(plan_.chunks()[1].has_gaps);
  EXPECT_EQ(plan_.last_chunk_of(2), 0);
  EXPECT_EQ(plan_.last_chunk_of(5), 3);
  EXPECT_EQ(plan_.last_chunk_of(9), -1);
}

TEST_F(StagePlanTest, RoomIsWholeBlocksLeftInChunk) {
  constexpr uint64_t kLong = 4 * kChunkBytes;
  const auto begin = reinterpret_cast<uintptr_t>(arena_.data());
  const uint64_t block = base::align_up(begin, kBlockBytes) - begin;
  const std::array<DeviceBytes, 1> source{{{state_.data(), 2 * kBlockBytes}}};
  const auto room_behind = [&](uint64_t at) {
    StagePlan plan(kLong);
    plan.add({.to = {arena_.data() + at, 2 * kBlockBytes}, .id = 1}, source);
    return plan.room();
  };
  EXPECT_EQ(room_behind(block), kLong - 2 * kBlockBytes);
  EXPECT_EQ(room_behind(block + 64), kLong - 3 * kBlockBytes) << "the next block ends later";
}

TEST_F(StagePlanTest, ClosedChunkDoesNotGrow) {
  EXPECT_EQ(plan_.ready(), 0u);
  add(0, 0, 100);
  EXPECT_EQ(plan_.ready(), 0u);
  plan_.close();
  EXPECT_EQ(plan_.ready(), 1u);
  EXPECT_EQ(plan_.room(), kChunkBytes);
  add(0, 100, 100);  // adjacent to the closed chunk
  ASSERT_EQ(plan_.chunks().size(), 2u);
  EXPECT_EQ(plan_.chunks()[0].bytes, 100u);
  EXPECT_EQ(plan_.ready(), 1u);
  add(0, 200, 100);
  EXPECT_EQ(plan_.chunks().size(), 2u);
  EXPECT_EQ(plan_.last_chunk_of(0), 1);
}

// Every place is in one chunk, in order, inside its bounds.
TEST_F(StagePlanTest, EveryPlaceIsInOneChunk) {
  std::mt19937_64 random(11);
  add_at_random(random);
  uint64_t places = 0;
  for (size_t i = 0; i < plan_.chunks().size(); ++i) {
    const StageChunk& chunk = plan_.chunks()[i];
    EXPECT_LE(chunk.bytes, kChunkBytes);
    EXPECT_EQ(plan_.first_place(i), places);
    uint64_t end = 0;
    bool gaps = false;
    for (; places < chunk.places_end; ++places) {
      const StagedPlace& place = plan_.places()[places];
      EXPECT_GE(offset_of(place, chunk), end);
      gaps = gaps || offset_of(place, chunk) > end;
      end = offset_of(place, chunk) + place.to.size();
      EXPECT_EQ(place.id, places + 1);
    }
    EXPECT_EQ(end, chunk.bytes);
    EXPECT_EQ(gaps, chunk.has_gaps);
  }
  EXPECT_EQ(places, id_);
}

// Packing by the lists of any group of chunks, and draining each chunk, gives the original bytes.
TEST_F(StagePlanTest, PackListsBringEachByteToItsSlot) {
  std::mt19937_64 random(12);
  for (std::byte& byte : state_) byte = static_cast<std::byte>(random());
  add_at_random(random);
  PackLists lists;
  size_t places = 0;
  for (size_t first = 0; first < plan_.chunks().size();) {
    const size_t end = std::min(plan_.chunks().size(), first + 1 + random() % 5);
    plan_.list(first, end, lists);
    std::vector<std::byte> slots((end - first) * kChunkBytes);
    for (const kernels::PackPiece& piece : lists.pieces) {
      std::copy_n(piece.from, piece.bytes, slots.begin() + static_cast<ptrdiff_t>(piece.offset));
    }
    size_t range = 0;
    for (size_t i = first; i < end; ++i) {
      const StageChunk& chunk = plan_.chunks()[i];
      const auto slot = slots.begin() + static_cast<ptrdiff_t>((i - first) * kChunkBytes);
      for (; places < chunk.places_end; ++places, ++range) {
        const StagedPlace& place = plan_.places()[places];
        ASSERT_LT(range, lists.ranges.size());
        EXPECT_EQ(lists.ranges[range].offset, (i - first) * kChunkBytes + offset_of(place, chunk));
        EXPECT_EQ(lists.ranges[range].bytes, place.to.size());
        std::copy_n(slot + static_cast<ptrdiff_t>(offset_of(place, chunk)), place.to.size(),
                    place.to.begin());
        const auto at = static_cast<size_t>(place.to.data() - arena_.data());
        EXPECT_TRUE(std::equal(place.to.begin(), place.to.end(),
                               state_.begin() + static_cast<ptrdiff_t>(at)));
      }
    }
    EXPECT_EQ(range, lists.ranges.size());
    first = end;
  }
  EXPECT_EQ(places, id_);
}

// Direct or packed, each byte reaches its place, and the CRCs of the parts combine to the place's.
TEST_F(StagePlanTest, DirectCopiesAndCrcsCombineToPlace) {
  std::mt19937_64 random(13);
  for (std::byte& byte : state_) byte = static_cast<std::byte>(random());
  StagePlan direct(kChunkBytes, {.run_bytes_min = 5000, .until = 600'000});
  const uint64_t bytes = add_cut_at_random(direct, random);
  ASSERT_GT(bytes, 700'000u);
  PackLists lists;
  size_t direct_runs = 0;
  for (size_t first = 0; first < direct.chunks().size();) {
    const size_t end = std::min(direct.chunks().size(), first + 1 + random() % 5);
    direct.list(first, end, lists);
    direct_runs += lists.runs.size();
    for (const kernels::ChecksumRun& run : lists.runs) EXPECT_GE(run.bytes, 5000u);
    std::vector<std::byte> slots((end - first) * kChunkBytes);
    std::vector<uint32_t> gathered, runs;
    run_kernels(lists, slots, gathered, runs);
    const GroupCrcs found{direct.first_place(first), gathered.data(), runs.data()};
    const std::byte* slot = slots.data();
    for (size_t i = first; i < end; ++i) {
      const StageChunk& chunk = direct.chunks()[i];
      for (const StageCopy& copy : direct.copies(i)) {
        std::copy_n(copy.from != nullptr ? copy.from : slot + copy.at, copy.bytes,
                    chunk.to + copy.at);
      }
      for (size_t place = direct.first_place(i); place < chunk.places_end; ++place) {
        const MutableByteView to = direct.places()[place].to;
        EXPECT_EQ(direct.crc_of(place, found), base::crc32c(to)) << "place " << place;
        const auto at = static_cast<size_t>(to.data() - arena_.data());
        EXPECT_TRUE(std::equal(to.begin(), to.end(), state_.data() + at)) << "place " << place;
      }
      slot += chunk.in_slot ? kChunkBytes : 0;
    }
    first = end;
  }
  EXPECT_GT(direct_runs, 20u);
}

TEST_F(StagePlanTest, OnlyLongEarlyDeviceRunsAreDirect) {
  StagePlan plan(kChunkBytes, {.run_bytes_min = 1000, .until = 8000});
  const auto add_one = [&](UnitId unit, uint64_t at, std::span<const DeviceBytes> sources) {
    uint64_t bytes = 0;
    for (const DeviceBytes& source : sources) bytes += source.bytes;
    plan.add({.unit = unit, .to = {arena_.data() + at, bytes}, .id = ++id_}, sources);
  };
  const std::byte* from = state_.data();
  const std::array<DeviceBytes, 4> sources{
      {{from, 999}, {from, 1000}, {from, 2000, /*on_host=*/true}, {from, 1000}}};
  add_one(0, 0, sources);                                        // bytes up to 4999
  add_one(1, 4999, std::array<DeviceBytes, 1>{{{from, 3001}}});  // up to 8000
  plan.close();
  add_one(2, 10'000, std::array<DeviceBytes, 1>{{{from, 1000}}});  // after the direct range
  ASSERT_EQ(plan.chunks().size(), 2u);
  const auto copies = plan.copies(0);
  ASSERT_EQ(copies.size(), 5u);
  EXPECT_EQ(copies[0].from, nullptr);
  EXPECT_EQ(copies[1].from, from);
  EXPECT_EQ(copies[2].from, nullptr);
  EXPECT_EQ(copies[2].at, 1999u);
  EXPECT_EQ(copies[2].bytes, 2000u);
  EXPECT_EQ(copies[4].from, from);
  EXPECT_TRUE(plan.chunks()[0].in_slot);
  EXPECT_FALSE(plan.chunks()[0].has_gaps);
  ASSERT_EQ(plan.copies(1).size(), 1u);
  EXPECT_EQ(plan.copies(1)[0].from, nullptr);
  EXPECT_EQ(plan.last_direct_of(0), 0);
  EXPECT_EQ(plan.last_direct_of(1), 0);
  EXPECT_EQ(plan.last_direct_of(2), -1);
  EXPECT_EQ(plan.last_direct(), 0);
  EXPECT_EQ(plan.last_chunk_of(2), 1);
}

// Sizes of the groups into which next_group() divides the chunks.
std::vector<size_t> groups_of(const std::vector<StageChunk>& chunks, size_t slot, size_t slots) {
  std::vector<size_t> groups;
  for (size_t first = 0; first < chunks.size(); first += groups.back()) {
    const StageGroup next =
        next_group(std::span(chunks).subspan(first), groups.size(), slot, slots);
    groups.push_back(next.chunks);
    slot = (slot + next.slots) % slots;
  }
  return groups;
}

TEST(NextGroupTest, GroupsDoubleUpToQuarterOfBuffer) {
  constexpr size_t kSlots = 22;
  const std::vector<StageChunk> gathered(67, {.in_slot = true});
  EXPECT_EQ(groups_of(gathered, 9, kSlots), (std::vector<size_t>{1, 2, 4, 5, 1,  //
                                                                 5, 5, 5, 5, 2,  //
                                                                 5, 5, 5, 5, 2,  //
                                                                 5, 5}));
  const std::vector<StageChunk> many(1 << 18, {.in_slot = true});
  EXPECT_EQ(next_group(many, 1'000'000, 0, 1 << 20).chunks, size_t{1} << 18);
  for (size_t slots = 2; slots < 8; ++slots) {
    EXPECT_EQ(next_group(gathered, 9, 0, slots).chunks, 1u) << slots;
  }
}

TEST(NextGroupTest, DirectChunksCrossEndOfBuffer) {
  const std::vector<StageChunk> direct(10);
  EXPECT_EQ(groups_of(direct, 15, 16), (std::vector<size_t>{1, 2, 4, 3}));
  std::vector<StageChunk> mixed(10);
  mixed[4].in_slot = true;  // the buffer's last slot: the group ends
  EXPECT_EQ(groups_of(mixed, 15, 16), (std::vector<size_t>{1, 2, 2, 4, 1}));
}

TEST(NextGroupTest, GroupIsWholeWhenNoChunkCanJoin) {
  const std::vector<StageChunk> gathered(3, {.in_slot = true});
  EXPECT_FALSE(next_group({}, 0, 0, 16).is_whole);
  EXPECT_TRUE(next_group(gathered, 0, 0, 16).is_whole);
  EXPECT_FALSE(next_group(gathered, 2, 0, 16).is_whole);
  EXPECT_TRUE(next_group(gathered, 2, 13, 16).is_whole);
}

}  // namespace
}  // namespace ckpt::lib
