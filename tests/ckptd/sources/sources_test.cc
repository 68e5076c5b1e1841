// The list of sources: its order, and speeds that restores measure.
#include "ckptd/sources/sources.h"

#include <gtest/gtest.h>

#include "tests/ckptd/sources/fake_source.h"

namespace ckptd {
namespace {

using std::chrono::milliseconds;

SourceBytes bytes_of(uint64_t memory, uint64_t segment) {
  SourceBytes bytes;
  bytes[SourceId::kMemory] = memory;
  bytes[SourceId::kSegment] = segment;
  return bytes;
}

class SourcesTest : public testing::Test {
 protected:
  SourcesTest() {
    add_fake_sources(sources, [](const FragmentName& name) { return name.uid == 7; });
  }
  double memory() const { return sources.at(SourceId::kMemory).expected_bandwidth(); }
  double segment() const { return sources.at(SourceId::kSegment).expected_bandwidth(); }
  Sources sources;
};

TEST_F(SourcesTest, FragmentComesFromFirstSourceThatHasOne) {
  const ckpt::SnapshotKey snapshot;
  const FragmentPlace stored{.length = 10, .segment = 3, .payload_offset = 4096};
  const Place in_memory{SourceId::kMemory, {3, 4096}};
  const Place in_segment{SourceId::kSegment, {3, 4096}};
  EXPECT_EQ(sources.places(7).first(snapshot, 1, stored), in_memory);
  EXPECT_EQ(sources.places(8).first(snapshot, 1, stored), in_segment);
  EXPECT_EQ(sources.after(SourceId::kMemory, {7, snapshot, 1, stored}), in_segment);
  EXPECT_EQ(sources.after(SourceId::kSegment, {7, snapshot, 1, stored}), std::nullopt);
}

TEST_F(SourcesTest, RestoresFromOneSourceMeasureItsSpeed) {
  EXPECT_EQ(memory(), 0);
  EXPECT_EQ(segment(), 0);
  sources.restored(bytes_of(40'000'000, 0), milliseconds(10));
  EXPECT_DOUBLE_EQ(memory(), 4e9);
  EXPECT_EQ(segment(), 0);
  sources.restored(bytes_of(0, 20'000'000), milliseconds(10));
  EXPECT_DOUBLE_EQ(segment(), 2e9);
  sources.restored(bytes_of(0, 10'000'000), milliseconds(10));
  EXPECT_DOUBLE_EQ(segment(), 1.5e9) << "the mean of the newest and the older ones";
  EXPECT_DOUBLE_EQ(memory(), 4e9);
}

TEST_F(SourcesTest, MixedAndTinyRestoresMeasureNothing) {
  sources.restored({}, milliseconds(10));
  sources.restored(bytes_of(Sources::kMeasuredBytesMin - 1, 0), milliseconds(10));
  sources.restored(bytes_of(40'000'000, 1), milliseconds(10));
  sources.restored(bytes_of(40'000'000, 0), milliseconds(0));
  EXPECT_EQ(memory(), 0);
  EXPECT_EQ(segment(), 0);
}

}  // namespace
}  // namespace ckptd
