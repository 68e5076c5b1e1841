// SmallStore: journal, staging and persist on one disk, with one trainer, for tests. Its reader
// checks a store's real contents: the journal, then every extent that it names, byte for byte.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <optional>

#include "ckptd/io/store_paths.h"
#include "ckptd/persist/persist.h"
#include "formats/base/checked.h"
#include "tests/ckptd/io/disk_fixture.h"
#include "tests/ckptd/staging/small_trainer.h"

namespace ckptd {

inline constexpr uint64_t kTestSlabBytes = 256 << 10;
inline constexpr uint64_t kTestSegmentBytes = 1 << 20;
inline const ckpt::base::Hash128 kTestStore{.low = 11, .high = 12};

// Bytes of one unit of one step: any reader can make them again.
inline uint64_t fragment_seed(ckpt::Step step, ckpt::UnitId unit) { return step * 1000 + unit; }

class SmallStore {
 public:
  explicit SmallStore(Disk& disk, uint32_t slabs = 8)
      : disk_(disk),
        journal_file_(make_journal()),
        journal_(disk, journal_file_, {}),
        staging_(disk, *executor_, {.arena_bytes_total = 64 * kTestSlabBytes, .restore_slabs = 0}),
        persist_(disk, *executor_, journal_,
                 {.store = kTestStore,
                  .segment_bytes = kTestSegmentBytes,
                  .bytes_in_flight_max = 256 << 10,
                  .write_piece_bytes = 64 << 10,
                  .on_dead = [this](const ExtentPlace& extent) { dead.push_back(extent); }}) {
    granted_ = staging_.create(1000, slabs * kTestSlabBytes, kTestSlabBytes).value();
    run_all(disk_, *executor_);
    trainer_ = std::make_unique<SmallTrainer>(granted_);
  }
  ~SmallStore() {
    persist_.close();
    run_all(disk_, *executor_);
    staging_.close();
    disk_.close(journal_file_);
  }

  static ckpt::SnapshotKey key(ckpt::Step step) {
    return {.run = 1, .lineage = 1, .epoch = 1, .step = step};
  }
  // Leases, fills and seals a slab for units first_unit, first_unit + 1.
  StagedSlab stage(ckpt::Step step, ckpt::UnitId first_unit) {
    const auto leased = staging_.lease(granted_.arena, 1);
    EXPECT_EQ(leased.size(), 1u) << "out of slabs";
    filled_ = trainer_->fill(leased.at(0), {{first_unit, 100'000}, {first_unit + 1, 1000}},
                             fragment_seed(step, first_unit));
    return staging_.seal(granted_.arena, filled_.slab, filled_.payload_bytes, filled_.fragments)
        .value();
  }
  struct Snapshot {
    std::vector<WrittenExtent> extents;
    std::optional<ckpt::Error> write_error;
    size_t writes_open = 0;
    std::optional<Result<uint64_t>> committed;
  };
  void write(ckpt::Step step, ckpt::UnitId first_unit) { write(step, stage(step, first_unit)); }
  // With `encode_units`, fragments that get smaller are encoded.
  void write(ckpt::Step step, StagedSlab slab, UnitSpecList encode_units = nullptr) {
    ++snapshots[step].writes_open;
    const auto written = [this, step](Result<WrittenExtent> result) {
      Snapshot& snapshot = snapshots[step];
      --snapshot.writes_open;
      if (result.ok()) {
        snapshot.extents.push_back(std::move(result).value());
      } else if (!snapshot.write_error.has_value()) {
        snapshot.write_error = result.error();
      }
    };
    persist_.write(key(step), 0, std::move(slab), written, {}, Persist::Afterwards::kHold,
                   encode_units == nullptr ? nullptr : encode_all(std::move(encode_units)));
  }
  void commit(ckpt::Step step) {
    auto body = std::make_unique<ckpt::fb::CommittedT>();
    body->run = 1;
    body->lineage = 1;
    body->epoch = 1;
    body->step = step;
    ckpt::fill_extents(snapshots[step].extents, *body);
    ckpt::fb::RecordT record;
    record.body.Set(std::move(*body));
    persist_.commit(
        key(step), [record] { return record; },
        [this, step](Result<uint64_t> result) { snapshots[step].committed = std::move(result); });
  }
  // Runs until the snapshot has no open write / has its commit's answer.
  void run_writes(ckpt::Step step) {
    run_until(disk_, *executor_, [&] { return snapshots[step].writes_open == 0; });
  }
  bool save(ckpt::Step step, int slabs = 2) {
    for (int i = 0; i < slabs; ++i) write(step, static_cast<ckpt::UnitId>(10 * i));
    run_writes(step);
    if (snapshots[step].write_error.has_value()) {
      persist_.abandon(key(step));
      return false;
    }
    commit(step);
    run_until(disk_, *executor_, [&] { return snapshots[step].committed.has_value(); });
    return snapshots[step].committed->ok();
  }
  void run() { run_all(disk_, *executor_); }

  Disk& disk() { return disk_; }
  Executor& executor() { return *executor_; }
  Persist& persist() { return persist_; }
  JournalWriter& journal() { return journal_; }
  Staging& staging() { return staging_; }
  SmallTrainer& trainer() { return *trainer_; }
  const SmallTrainer::Filled& filled() const { return filled_; }
  uint64_t slabs(SlabState state) { return staging_.stats().slabs[state]; }

  std::map<ckpt::Step, Snapshot> snapshots;
  std::vector<ExtentPlace> dead;  // of aborted snapshots

 private:
  FileId make_journal() {
    EXPECT_TRUE(disk_.make_directory(kJournalDirectory).ok());
    EXPECT_TRUE(disk_.sync_directory("").ok());
    const FileId file =
        disk_.open(kJournalPath, {.create = true, .preallocate_bytes = 1 << 20}).value();
    EXPECT_TRUE(sync_blocking(disk_, file).ok());
    EXPECT_TRUE(disk_.sync_directory(kJournalDirectory).ok());
    return file;
  }

  Disk& disk_;
  std::unique_ptr<Executor> executor_ = make_inline_executor();
  FileId journal_file_;
  JournalWriter journal_;
  Staging staging_;
  Persist persist_;
  Staging::Granted granted_;
  std::unique_ptr<SmallTrainer> trainer_;
  SmallTrainer::Filled filled_;
};

inline AlignedBuffer read_range(Disk& disk, const std::string& path, uint64_t offset,
                                uint64_t bytes) {
  AlignedBuffer buffer(bytes);
  auto file = disk.open(path, {});
  EXPECT_TRUE(file.ok()) << file.error().message;
  if (!file.ok()) return buffer;
  auto read = read_blocking(disk, *file, offset, buffer.bytes());
  EXPECT_TRUE(read.ok() && *read == buffer.size()) << path << " is too short";
  disk.close(*file);
  return buffer;
}

// Checks one extent of a commit against what the journal says and against the bytes that the
// trainer of this store makes.
inline void check_extent(Disk& disk, const ckpt::fb::CommittedT& commit, uint32_t index) {
  const ckpt::fb::ExtentT& extent = *commit.extents.at(index);
  const std::string path = segment_path(extent.segment);
  const auto segment = ckpt::decode_segment_header(read_range(disk, path, 0, 4096).bytes());
  ASSERT_TRUE(segment.ok()) << segment.error().message;
  EXPECT_EQ(segment->store, kTestStore);
  EXPECT_EQ(segment->segment, extent.segment);
  const AlignedBuffer header = read_range(disk, path, extent.offset, extent.header_bytes);
  const auto decoded = ckpt::decode_extent_header(header.bytes());
  ASSERT_TRUE(decoded.ok()) << decoded.error().message;
  EXPECT_EQ(decoded->snapshot.step, commit.step);
  EXPECT_EQ(decoded->offset, extent.offset);
  EXPECT_EQ(decoded->payload_bytes, extent.payload_bytes);
  const AlignedBuffer payload =
      read_range(disk, path, extent.offset + extent.header_bytes, extent.payload_bytes);
  EXPECT_EQ(ckpt::base::crc32c(payload.bytes()), extent.payload_crc32c)
      << "step " << commit.step << " extent " << index;
  std::mt19937_64 random(fragment_seed(commit.step, decoded->fragments.at(0).unit));
  for (const ckpt::ExtentFragment& fragment : decoded->fragments) {
    for (uint64_t i = 0; i < fragment.length; ++i) {
      ASSERT_EQ(payload.bytes()[fragment.payload_offset + i], static_cast<std::byte>(random()))
          << "step " << commit.step << " unit " << fragment.unit << " byte " << i;
    }
  }
}

// The steps of all commits in the journal, each checked to the last byte.
inline std::vector<ckpt::Step> committed_steps(Disk& disk) {
  auto file = disk.open(kJournalPath, {});
  EXPECT_TRUE(file.ok()) << file.error().message;
  if (!file.ok()) return {};
  AlignedBuffer image(disk.size(*file).value());
  EXPECT_TRUE(read_blocking(disk, *file, 0, image.bytes()).ok());
  disk.close(*file);
  std::vector<ckpt::Step> steps;
  std::vector<ckpt::fb::CommittedT> commits;
  const auto scan = ckpt::scan_journal(image.bytes(), [&](uint64_t, const ckpt::fb::RecordT& r) {
    if (const auto* commit = r.body.AsCommitted()) commits.push_back(*commit);
    return Status();
  });
  EXPECT_TRUE(scan.ok()) << scan.error().message;
  for (const ckpt::fb::CommittedT& commit : commits) {
    steps.push_back(commit.step);
    for (uint32_t i = 0; i < commit.extents.size(); ++i) check_extent(disk, commit, i);
  }
  return steps;
}

// Header, payload and padding.
inline ExtentPlace place_of(const WrittenExtent& extent) {
  const uint64_t payload = ckpt::base::align_up(extent.payload_bytes, ckpt::kBlockBytes);
  return {extent.segment, extent.offset, extent.header_bytes + payload};
}

}  // namespace ckptd
