// The faults of the memory disk: each fault happens, and a crash keeps exactly what it may keep.
#include <gmock/gmock.h>

#include <algorithm>

#include "tests/ckptd/io/disk_fixture.h"

namespace ckptd {
namespace {

using ckpt::ErrorCode;
using ckpt::kBlockBytes;

std::vector<std::byte> contents(Disk& disk, const std::string& path) {
  auto file = disk.open(path, {});
  if (!file.ok()) return {};
  AlignedBuffer bytes(disk.size(*file).value());
  const uint64_t read = read_blocking(disk, *file, 0, bytes.bytes()).value();
  disk.close(*file);
  return {bytes.bytes().begin(), bytes.bytes().begin() + static_cast<ptrdiff_t>(read)};
}

bool same(ByteView a, ByteView b) { return std::ranges::equal(a, b); }

TEST(MemoryDisk, CrashKeepsSyncedAndMayLoseUnsyncedBytes) {
  const AlignedBuffer synced = random_bytes(8 * kBlockBytes, 1);
  const AlignedBuffer unsynced = random_bytes(8 * kBlockBytes, 2);
  int lost = 0;
  int kept = 0;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    MemoryDisk disk({.seed = seed});
    const FileId file = disk.open("a", {.create = true}).value();
    ASSERT_TRUE(disk.sync_directory("").ok());
    ASSERT_TRUE(write_blocking(disk, file, 0, synced.bytes()).ok());
    ASSERT_TRUE(sync_blocking(disk, file).ok());
    ASSERT_TRUE(write_blocking(disk, file, synced.size(), unsynced.bytes()).ok());
    auto image = disk.crash(seed);
    const auto bytes = contents(*image, "a");
    ASSERT_GE(bytes.size(), synced.size()) << "seed " << seed;
    EXPECT_TRUE(same(ByteView(bytes).first(synced.size()), synced.bytes())) << "seed " << seed;
    const bool all = same(ByteView(bytes).subspan(synced.size()), unsynced.bytes());
    ++(all ? kept : lost);
    EXPECT_TRUE(same(contents(disk, "a"), contents(disk, "a"))) << "the old disk goes on";
    disk.close(file);
  }
  EXPECT_GT(lost, 10) << "unsynced bytes must be lost most of the time: " << kept << " kept";
}

TEST(MemoryDisk, SyncCoversOnlyWritesCompletedBefore) {
  // Write and sync in flight together: over many seeds the write must be lost in some crashes even
  // though the sync reported success.
  const AlignedBuffer data = random_bytes(kBlockBytes, 3);
  int lost = 0;
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    MemoryDisk disk({.seed = seed});
    const FileId file = disk.open("a", {.create = true, .preallocate_bytes = 4096}).value();
    ASSERT_TRUE(disk.sync_directory("").ok());
    ASSERT_TRUE(sync_blocking(disk, file).ok());
    disk.submit(
        {.op = IoOp::kWrite, .file = file, .memory = const_cast<AlignedBuffer&>(data).bytes()});
    disk.submit({.op = IoOp::kSync, .file = file});
    while (disk.in_flight() > 0) disk.reap();
    auto image = disk.crash(seed);
    lost += same(contents(*image, "a"), data.bytes()) ? 0 : 1;
    disk.close(file);
  }
  EXPECT_GT(lost, 5);
}

TEST(MemoryDisk, NamesAreDurableOnceTheirDirectoryIsSynced) {
  int vanished = 0;
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    MemoryDisk disk({.seed = seed});
    disk.close(disk.open("kept", {.create = true}).value());
    ASSERT_TRUE(disk.sync_directory("").ok());
    disk.close(disk.open("maybe", {.create = true}).value());
    const auto names = disk.crash(seed)->list("").value();
    EXPECT_THAT(names, testing::Contains("kept")) << "seed " << seed;
    vanished += names.size() == 1 ? 1 : 0;
  }
  EXPECT_GT(vanished, 5);
  EXPECT_LT(vanished, 25);
}

TEST(MemoryDisk, AKillLosesNothingAndMakesNothingDurable) {
  const AlignedBuffer data = random_bytes(8 * kBlockBytes, 4);
  int lost = 0;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    MemoryDisk disk({.seed = seed});
    const FileId file = disk.open("a", {.create = true}).value();
    ASSERT_TRUE(disk.sync_directory("").ok());
    ASSERT_TRUE(write_blocking(disk, file, 0, data.bytes()).ok());
    disk.close(file);
    const auto next = disk.after_kill(seed);
    EXPECT_TRUE(same(contents(*next, "a"), data.bytes())) << "seed " << seed;
    lost += same(contents(*next->crash(seed), "a"), data.bytes()) ? 0 : 1;
    const FileId again = next->open("a", {}).value();
    ASSERT_TRUE(sync_blocking(*next, again).ok());
    next->close(again);
    EXPECT_TRUE(same(contents(*next->crash(seed), "a"), data.bytes())) << "seed " << seed;
  }
  EXPECT_GT(lost, 10);
}

TEST(MemoryDisk, CloneKeepsUnsyncedBytes) {
  MemoryDisk disk({.seed = 4});
  const FileId file = disk.open("a", {.create = true}).value();
  const AlignedBuffer data = random_bytes(4 * kBlockBytes, 5);
  ASSERT_TRUE(write_blocking(disk, file, 0, data.bytes()).ok());
  auto image = disk.clone(1);
  EXPECT_TRUE(same(contents(*image, "a"), data.bytes()));
  disk.close(file);
}

struct SilentFault {
  const char* name;
  MemoryFaults faults;
};

class SilentFaults : public testing::TestWithParam<SilentFault> {};

TEST_P(SilentFaults, ReportSuccessAndStoreOtherBytes) {
  MemoryDisk disk({.seed = 6});
  const FileId file = disk.open("a", {.create = true, .preallocate_bytes = 1 << 20}).value();
  disk.set_faults(GetParam().faults);
  const AlignedBuffer data = random_bytes(16 * kBlockBytes, 7);
  ASSERT_TRUE(write_blocking(disk, file, 0, data.bytes()).ok());
  AlignedBuffer back(data.size());
  ASSERT_TRUE(read_blocking(disk, file, 0, back.bytes()).ok());
  EXPECT_FALSE(same(back.bytes(), data.bytes()));
  disk.close(file);
}

INSTANTIATE_TEST_SUITE_P(All, SilentFaults,
                         testing::Values(SilentFault{"lost", {.lost_write = 1}},
                                         SilentFault{"torn", {.torn_write = 1}},
                                         SilentFault{"flipped", {.flipped_write = 1}},
                                         SilentFault{"misdirected", {.misdirected_write = 1}}),
                         [](const auto& test) { return test.param.name; });

TEST(MemoryDisk, ShortWritesAreContinued) {
  MemoryDisk disk({.seed = 8});
  disk.set_faults({.short_write = 0.9});
  const FileId file = disk.open("a", {.create = true}).value();
  const AlignedBuffer data = random_bytes(64 * kBlockBytes, 9);
  ASSERT_TRUE(write_blocking(disk, file, 0, data.bytes()).ok());
  EXPECT_TRUE(same(contents(disk, "a"), data.bytes()));
  disk.close(file);
}

TEST(MemoryDisk, FailsTheNthRequestOfThePathOnly) {
  MemoryDisk disk({.seed = 10});
  const FileId a = disk.open("a", {.create = true}).value();
  const FileId b = disk.open("b", {.create = true}).value();
  disk.set_faults({.path_prefix = "a", .fail_nth_write = 2, .fail_nth_sync = 1});
  const AlignedBuffer data = random_bytes(kBlockBytes, 11);
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(write_blocking(disk, b, 0, data.bytes()).ok());
  EXPECT_TRUE(write_blocking(disk, a, 0, data.bytes()).ok());
  const Status second = write_blocking(disk, a, 0, data.bytes());
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().code, ErrorCode::kIo);
  EXPECT_TRUE(write_blocking(disk, a, 0, data.bytes()).ok());
  EXPECT_TRUE(sync_blocking(disk, b).ok());
  EXPECT_FALSE(sync_blocking(disk, a).ok());
  EXPECT_TRUE(sync_blocking(disk, a).ok()) << "an error is reported once";
  disk.close(a);
  disk.close(b);
}

TEST(MemoryDisk, FullDiskRefusesWritesUntilCapacityGrows) {
  MemoryDisk disk({.seed = 12, .capacity_bytes = 8 * kBlockBytes});
  const FileId file = disk.open("a", {.create = true, .preallocate_bytes = 4 * 4096}).value();
  EXPECT_EQ(disk.space().value().free_bytes, 4 * kBlockBytes);
  const AlignedBuffer data = random_bytes(8 * kBlockBytes, 13);
  EXPECT_TRUE(write_blocking(disk, file, 0, data.bytes()).ok());
  const Status full = write_blocking(disk, file, 8 * kBlockBytes, data.bytes());
  ASSERT_FALSE(full.ok());
  EXPECT_EQ(full.error().code, ErrorCode::kResourceExhausted);
  disk.set_capacity(64 * kBlockBytes);
  EXPECT_TRUE(write_blocking(disk, file, 8 * kBlockBytes, data.bytes()).ok());
  disk.close(file);
}

TEST(MemoryDisk, SameSeedGivesSameCompletionOrder) {
  auto history = [](uint64_t seed) {
    MemoryDisk disk({.seed = seed});
    const FileId file = disk.open("a", {.create = true}).value();
    AlignedBuffer data = random_bytes(kBlockBytes, 14);
    std::vector<int> order;
    for (int i = 0; i < 16; ++i) {
      disk.submit({.op = IoOp::kWrite,
                   .file = file,
                   .memory = data.bytes(),
                   .on_done = [&order, i](Result<uint64_t>) { order.push_back(i); }});
    }
    while (disk.in_flight() > 0) disk.reap();
    disk.close(file);
    return order;
  };
  EXPECT_EQ(history(1), history(1));
  EXPECT_NE(history(1), history(2));
}

}  // namespace
}  // namespace ckptd
