// One flipped byte anywhere in a live extent is found and named.
#include "ckptd/restore/verify.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <random>

#include "formats/base/checked.h"
#include "tests/ckptd/restore/restore_store.h"

namespace ckptd {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

class VerifyTest : public testing::Test {
 protected:
  void SetUp() override {
    store_.commit_all({1, 20});
    store_.commit({1, 25}, {0, 1});
  }
  const fb::ExtentT& extent(ckpt::Step step, size_t number) {
    record_ = store_.catalog.record(kTestRun, 1, step).value();
    return *record_.extents.at(number);
  }
  // Flips a byte at this distance from the start of the extent header, verifies, flips it back.
  VerifyReport verify_flipped(const fb::ExtentT& extent, uint64_t at) {
    const std::string path = segment_path(extent.segment);
    const uint64_t offset = extent.offset + at;
    store_.disk.flip(path, offset, 0x10);
    VerifyReport report = store_.verify();
    store_.disk.flip(path, offset, 0x10);
    return report;
  }

  RestoreStore store_{restore_units()};
  fb::CommittedT record_;
};

TEST_F(VerifyTest, IntactStoreHasNoErrors) {
  const VerifyReport report = store_.verify();
  EXPECT_THAT(report.errors, IsEmpty());
  EXPECT_EQ(report.commits, 2u);
  uint64_t bytes = 0;
  for (const ckpt::Step step : {20, 25}) {
    const fb::CommittedT commit = store_.catalog.record(kTestRun, 1, step).value();
    for (const auto& entry : commit.extents) {
      bytes += entry->header_bytes + ckpt::base::align_up(entry->payload_bytes, ckpt::kBlockBytes);
    }
  }
  EXPECT_EQ(report.checked_bytes, bytes);
}

TEST_F(VerifyTest, FlippedByteNamesRunStepAndUnit) {
  const fb::ExtentT& place = extent(25, 0);
  const VerifyReport report = verify_flipped(place, place.header_bytes + 12'345);
  ASSERT_EQ(report.errors.size(), 1u);
  EXPECT_EQ(report.errors[0].run, "tiny");
  EXPECT_EQ(report.errors[0].lineage, 1u);
  EXPECT_EQ(report.errors[0].step, 25u);
  EXPECT_EQ(report.errors[0].unit, store_.units[0].name);
  EXPECT_THAT(report.errors[0].reason, HasSubstr("CRC32C mismatch"));
  EXPECT_THAT(store_.verify().errors, IsEmpty());
}

// A flip in any part of an extent is found: header, payload or padding.
TEST_F(VerifyTest, FindsFlippedByteAnywhereInExtent) {
  const auto seed = static_cast<uint64_t>(testing::UnitTest::GetInstance()->random_seed());
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  const size_t extents = store_.catalog.record(kTestRun, 1, 20)->extents.size();
  for (size_t number = 0; number < extents; ++number) {
    const fb::ExtentT& place = extent(20, number);
    const uint64_t payload_end = place.header_bytes + place.payload_bytes;
    const uint64_t extent_end = ckpt::base::align_up(payload_end, ckpt::kBlockBytes);
    std::vector<uint64_t> offsets = {0, 8, place.header_bytes - 1ull, place.header_bytes,
                                     payload_end - 1};
    if (extent_end > payload_end) offsets.push_back(extent_end - 1);  // padding
    for (int i = 0; i < 20; ++i) offsets.push_back(random() % extent_end);
    for (const uint64_t at : offsets) {
      const VerifyReport report = verify_flipped(place, at);
      ASSERT_EQ(report.errors.size(), 1u) << "extent " << number << " byte " << at;
      EXPECT_EQ(report.errors[0].run, "tiny");
      EXPECT_EQ(report.errors[0].step, 20u);
      EXPECT_NE(report.errors[0].unit, "");
    }
  }
}

TEST_F(VerifyTest, ChecksAllCommitsOfChosenView) {
  const fb::ExtentT& full = extent(20, 0);
  store_.disk.flip(segment_path(full.segment), full.offset + full.header_bytes);
  EXPECT_EQ(store_.verify(kTestRun).commits, 2u);
  const VerifyReport view = store_.verify(kTestRun, ViewPoint{1, 25});
  EXPECT_EQ(view.commits, 2u);  // units 2, 3, ... still come from step 20
  EXPECT_EQ(view.errors.size(), 1u);
  const VerifyReport older = store_.verify(kTestRun, ViewPoint{1, 20});
  EXPECT_EQ(older.commits, 1u);
  EXPECT_EQ(older.errors.size(), 1u);
}

TEST_F(VerifyTest, AMissingSegmentNamesEveryUnitOnce) {
  ASSERT_TRUE(store_.disk.remove(segment_path(extent(20, 0).segment)).ok());
  SegmentReader fresh(store_.disk, kRestoreStoreId);
  RestoreContext context = store_.context();
  std::optional<VerifyReport> report;
  VerifyJob job({context.disk, context.executor, context.staging, fresh, context.catalog},
                {kTestRun}, {}, [&](VerifyReport done) { report = std::move(done); });
  job.start();
  store_.run();
  ASSERT_TRUE(report.has_value());
  EXPECT_EQ(report->errors.size(), store_.units.size() + 2);  // all of step 20, two of step 25
}

TEST_F(VerifyTest, ReadErrorIsReportedForItsCommit) {
  // The first read is of the file's header.
  store_.disk.set_faults({.path_prefix = "segments/", .fail_nth_read = 2});
  const VerifyReport report = store_.verify();
  EXPECT_FALSE(report.errors.empty());
  for (const VerifyError& error : report.errors) EXPECT_EQ(error.step, 20u);
}

// Reads refused for lack of descriptors, memory or permission: the bytes may be intact.
TEST_F(VerifyTest, RefusedReadsAreListedSeparately) {
  for (const int refusal : {EMFILE, EACCES, ENOMEM}) {
    for (const bool on_open : {true, false}) {
      MemoryFaults faults{.path_prefix = "segments/", .refusal = refusal};
      (on_open ? faults.refused_open : faults.refused_read) = 1;
      store_.segments.close(extent(20, 0).segment);
      store_.disk.set_faults(faults);
      const VerifyReport report = store_.verify();
      store_.disk.set_faults({});
      EXPECT_THAT(report.errors, IsEmpty()) << report.errors.front().reason;
      EXPECT_FALSE(report.unchecked.empty());
      for (const VerifyError& error : report.unchecked) {
        EXPECT_THAT(error.reason, HasSubstr(std::strerror(refusal)));
      }
    }
  }
  EXPECT_THAT(store_.verify().errors, IsEmpty());
  EXPECT_THAT(store_.verify().unchecked, IsEmpty());
}

// Verify reads the file's header again, although an earlier restore has checked it.
TEST_F(VerifyTest, ReadsFileHeaderAgain) {
  store_.restore_all({1, 25});
  ASSERT_THAT(store_.verify().errors, IsEmpty());
  store_.disk.flip(segment_path(extent(20, 0).segment), 9);
  const VerifyReport report = store_.verify();
  ASSERT_FALSE(report.errors.empty());
  EXPECT_THAT(report.errors[0].reason, HasSubstr("the header of the file is damaged"));
}

TEST_F(VerifyTest, ACommitMarkedDamagedIsAlwaysReported) {
  store_.apply(commit_damaged({1, 25}, "unit x: segment 1 offset 4096: extent header"));
  const VerifyReport report = store_.verify();
  ASSERT_EQ(report.errors.size(), 1u);
  EXPECT_EQ(report.errors[0].step, 25u);
  EXPECT_EQ(report.errors[0].unit, store_.units[0].name);
  EXPECT_THAT(
      report.errors[0].reason,
      HasSubstr("segment 1 offset 4096: extent header; a restart of ckptd checks it again"));
  EXPECT_EQ(store_.verify(kTestRun, ViewPoint{1, 25}).errors.size(), 1u);
}

TEST_F(VerifyTest, ClosedJobReportsNothing) {
  for (int polls = 0; polls < 6; ++polls) {
    bool closed = false;
    VerifyJob job(store_.context(), {kTestRun}, {}, [](VerifyReport) { FAIL() << "closed"; });
    job.start();
    for (int i = 0; i < polls; ++i) {
      store_.disk.reap();
      store_.executor->reap();
    }
    job.close([&] { closed = true; });
    EXPECT_FALSE(closed);
    store_.run();
    EXPECT_TRUE(closed);
  }
}

// Recovery checks the extent headers of every commit.
TEST_F(VerifyTest, RecoveryFindsDamagedHeaderAndNamesUnit) {
  const auto check = [&](ckpt::Step step) {
    return check_commit_headers(store_.segments, *store_.catalog.record(kTestRun, 1, step),
                                store_.units);
  };
  EXPECT_TRUE(check(20).ok());
  const fb::ExtentT& place = extent(20, 1);
  const std::string path = segment_path(place.segment);
  store_.disk.flip(path, place.offset + 100);
  const Status damaged = check(20);
  ASSERT_FALSE(damaged.ok());
  EXPECT_EQ(damaged.error().code, ckpt::ErrorCode::kCorrupt);
  EXPECT_THAT(damaged.error().message,
              HasSubstr(fmt::format("segment {} offset {}: ", place.segment, place.offset)));
  EXPECT_THAT(damaged.error().message, testing::StartsWith("unit layers.0.experts."));
  EXPECT_TRUE(check(25).ok());
  // An extent that cannot be read now is not marked damaged.
  store_.disk.set_faults({.path_prefix = "segments/", .fail_nth_read = 1});
  EXPECT_EQ(check(25).error().code, ckpt::ErrorCode::kIo);
  // An intact header of another commit: a misdirected or lost write.
  auto other = *store_.catalog.record(kTestRun, 1, 25);
  other.attempt += 1;
  EXPECT_FALSE(check_commit_headers(store_.segments, other, store_.units).ok());
}

}  // namespace
}  // namespace ckptd
