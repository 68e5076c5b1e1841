// Stores of older versions of ckptd, which moved the extents of a commit and recorded it as Moved.
#include "formats/base/checked.h"
#include "formats/segment.h"
#include "tests/ckptd/daemon/prune_fixture.h"
#include "tests/ckptd/daemon/store_files.h"

namespace ckptd::testing {
namespace {

constexpr ckpt::SegmentId kSegmentOfMoves = 100;

void append_to_journal(Disk& disk, const fb::RecordT& record) {
  const FileId file = disk.open(kJournalPath, {}).value();
  const auto scan = scan_journal_file(disk, file, [](uint64_t, const auto&) { return Status(); });
  ASSERT_TRUE(scan.ok());
  ckpt::JournalEncoder encoder(scan->end);
  const ckpt::JournalEncoder::Batch batch = encoder.encode({record});
  AlignedBuffer buffer(batch.bytes.size());
  std::copy(batch.bytes.begin(), batch.bytes.end(), buffer.bytes().begin());
  EXPECT_TRUE(write_blocking(disk, file, batch.offset, buffer.bytes()).ok());
  disk.close(file);
}

class MovedTest : public PruneTest {
 protected:
  // All extents of the commit get copies in a segment of their own, and the journal says so. No
  // daemon runs meanwhile.
  void move_commit(ckpt::Step step) {
    Disk& disk = world.disk();
    fb::CommittedT commit;
    ckpt::base::Hash128 store;
    for (const fb::RecordT& record : journal_records(disk)) {
      if (const auto* opened = record.body.AsStoreOpened()) {
        store = ckpt::wire::from_fb(opened->store);
      }
      const auto* found = record.body.AsCommitted();
      if (found != nullptr && found->step == step) commit = *found;
    }
    ASSERT_FALSE(commit.extents.empty());
    fb::MovedT moved;
    moved.run = commit.run;
    moved.lineage = commit.lineage;
    moved.epoch = commit.epoch;
    moved.step = commit.step;
    moved.attempt = commit.attempt;
    moved.time_ns = commit.time_ns;
    moved.fragments = commit.fragments;
    moved.encoded = commit.encoded;
    std::vector<std::byte> segment(ckpt::kBlockBytes);
    for (const auto& extent : commit.extents) {
      moved.from.emplace_back(extent->segment, extent->offset);
      moved.extents.push_back(copy_extent(*extent, segment));
    }
    ckpt::encode_segment_header(
        {.store = store, .segment = kSegmentOfMoves, .bytes = segment.size(), .created_ns = 1},
        ckpt::MutableByteView(segment).first(ckpt::kBlockBytes));
    put_file(disk, segment_path(kSegmentOfMoves), segment);
    append_to_journal(disk, make_record(std::move(moved)));
  }
  void restart_with_move(ckpt::Step step) {
    world.kill_daemon();
    move_commit(step);
    ASSERT_TRUE(world.start().ok());
    world.run();
  }
  double freed_bytes() { return world.metric("ckptd_freed_bytes_total"); }

 private:
  // Appends a copy of the extent to the segment, with the header of its new place.
  std::unique_ptr<fb::ExtentT> copy_extent(const fb::ExtentT& extent,
                                           std::vector<std::byte>& segment) {
    const auto file = file_bytes(world.disk(), segment_path(extent.segment));
    const uint64_t payload_bytes = ckpt::base::align_up(extent.payload_bytes, ckpt::kBlockBytes);
    const auto bytes =
        ckpt::ByteView(file).subspan(extent.offset, extent.header_bytes + payload_bytes);
    ckpt::ExtentHeader header = ckpt::decode_extent_header(bytes).value();
    auto copy = std::make_unique<fb::ExtentT>(extent);
    copy->segment = header.segment = kSegmentOfMoves;
    copy->offset = header.offset = segment.size();
    segment.insert(segment.end(), bytes.begin(), bytes.end());
    copy->header_crc32c = ckpt::encode_extent_header(
        header, ckpt::MutableByteView(segment).subspan(copy->offset).first(extent.header_bytes));
    return copy;
  }
};

TEST_F(MovedTest, BytesAreReadAtTheirNewPlace) {
  Job job(world, 2);
  job.start();
  job.commit(5);
  job.commit(10);
  restart_with_move(5);
  EXPECT_GT(freed_bytes(), 0u) << "the old place is dead";
  expect_view(job, 5, {5, 5, 5, 5});
  expect_view(job, 10, {10, 10, 10, 10});
  expect_verified();
  // The same from the journal alone.
  ask_root("rebuild", "{}");
  expect_view(job, 5, {5, 5, 5, 5});
  world.lose_catalog();
  restart();
  expect_view(job, 5, {5, 5, 5, 5});
  expect_view(job, 10, {10, 10, 10, 10});
  expect_verified();
  // A moved commit is pruned as any other is.
  job.start(fb::ResumeMode::Latest);
  ask(job, "prune", kLast1);
  world.run();
  expect_verified();
  expect_view(job, 10, {10, 10, 10, 10});
}

// The catalog proves a loss of durable records, and knows where the bytes are.
TEST_F(MovedTest, SalvageRestoresLostMoves) {
  Job job(world, 1);
  job.start();
  job.commit(5);
  world.run();
  const uint64_t end = journal_end(world.disk());
  restart_with_move(5);
  ASSERT_GT(freed_bytes(), 0u);
  world.kill_daemon();
  truncate_file(world.disk(), kJournalPath, end);
  ASSERT_TRUE(world.start().ok());
  expect_view(job, 5, {5, 5, 5, 5});
  expect_verified();
  world.lose_catalog();
  restart();
  expect_view(job, 5, {5, 5, 5, 5});
  expect_verified();
}

}  // namespace
}  // namespace ckptd::testing
