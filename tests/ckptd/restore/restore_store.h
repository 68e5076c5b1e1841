// RestoreStore: disk, arena, persist, journal and catalog in one thread, with a trainer that can
// regenerate every unit's bytes. Commits take the real path; restores and verifies read their
// results.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <vector>

#include "ckptd/io/memory_disk.h"
#include "ckptd/io/store_paths.h"
#include "ckptd/persist/persist.h"
#include "ckptd/restore/restore.h"
#include "ckptd/sources/memory/memory_source.h"
#include "ckptd/sources/segment/segment_source.h"
#include "tests/ckptd/catalog/records.h"
#include "tests/ckptd/restore/restore_client.h"
#include "tests/ckptd/staging/small_trainer.h"

namespace ckptd {

inline constexpr uint64_t kRestoreSlabBytes = 64 << 10;
inline const ckpt::base::Hash128 kRestoreStoreId{.low = 11, .high = 12};
inline constexpr uid_t kRestoreUid = 1000;

class RestoreStore {
 public:
  explicit RestoreStore(std::vector<ckpt::UnitSpec> unit_specs, uint64_t seed = 1,
                        uint32_t slabs = 12)
      : units(std::move(unit_specs)),
        disk(MemoryDisk::Options{.seed = seed}),
        executor(make_inline_executor()),
        journal_file_(make_journal()),
        journal(disk, journal_file_, {}),
        staging(disk, *executor, {.arena_bytes_total = 64 * kRestoreSlabBytes, .restore_slabs = 2}),
        persist(
            disk, *executor, journal,
            {.store = kRestoreStoreId, .segment_bytes = 1 << 20, .write_piece_bytes = 64 << 10}),
        segments(disk, kRestoreStoreId) {
    register_sources();
    granted = staging.create(kRestoreUid, slabs * kRestoreSlabBytes, kRestoreSlabBytes).value();
    run();
    trainer = std::make_unique<SmallTrainer>(granted);
    for (const auto& record :
         {store_opened(), run_created(), units_registered(units), lineage_opened(1, 0, 0)}) {
      apply(record);
    }
  }
  ~RestoreStore() {
    persist.close();
    run();
    staging.close();
    disk.close(journal_file_);
  }

  void run() { run_all(disk, *executor); }
  void apply(const fb::RecordT& record) {
    const Status applied = catalog.apply(next_sequence_++, record);
    ASSERT_TRUE(applied.ok()) << applied.error().message;
  }
  ckpt::SnapshotKey key(ViewPoint point) const {
    return {.run = kTestRun, .lineage = point.lineage, .epoch = 1, .step = point.step};
  }
  RestoreContext context() { return {disk, *executor, staging, segments, catalog, meter}; }
  RestoreJobContext restore_context() { return {*executor, staging, catalog, sources, meter}; }
  // The list of the daemon, perhaps with one more source after memory.
  void register_sources(std::unique_ptr<Source> second = nullptr) {
    sources = {};
    sources.add(std::make_unique<MemorySource>(staging));
    if (second) sources.add(std::move(second));
    sources.add(std::make_unique<SegmentSource>(disk, segments));
  }

  // Saves the units in fragments of at most `piece` bytes, as many to a slab as fit.
  void commit(ViewPoint point, const std::vector<ckpt::UnitId>& ids, uint64_t piece = 10'000) {
    std::vector<WrittenExtent> extents;
    Slab slab;
    for (const ckpt::UnitId unit : ids) {
      const auto bytes = unit_bytes(units[unit], point);
      for (uint64_t offset = 0; offset < bytes.size(); offset += piece) {
        const uint64_t length = std::min<uint64_t>(piece, bytes.size() - offset);
        const uint64_t align = length >= ckpt::kAlignedFragmentBytes ? ckpt::kBlockBytes : 1;
        if (ckpt::base::align_up(slab.used, align) + length > kRestoreSlabBytes) {
          extents.push_back(write(point, slab));
        }
        add(slab, unit, offset, ckpt::ByteView(bytes).subspan(offset, length), align);
      }
    }
    extents.push_back(write(point, slab));
    finish(point, extents, ids.size() == units.size());
  }
  void commit_all(ViewPoint point, uint64_t piece = 10'000) {
    commit(point, all_units(units), piece);
  }

  // Drops the memory level: later restores read segments.
  void forget_memory() { staging.drop_cached(kTestRun); }

  Restored restore(ViewPoint point, const std::vector<ckpt::UnitRange>& wants, bool exact = false) {
    Restored restored;
    RestoreRequest request{kTestRun, point, wants, exact};
    auto plan =
        plan_restore(request, catalog_oracle(catalog, request, sources.places(kRestoreUid)));
    if (!plan.ok()) {
      restored.error = plan.error();
      return restored;
    }
    for (const WantedVersion& version : plan->versions) {
      restored.served_by.push_back(version.snapshot);
      if (!version.note.empty()) restored.notes.push_back(version.note);
    }
    for (const ckpt::UnitRange& want : wants) restored.wants.emplace_back(want.length);
    RestoreJob job(
        restore_context(), granted.arena, kRestoreUid, request, std::move(*plan),
        [&](Result<Window> window) { client.receive(std::move(window), wants, restored); });
    client.restore(job, restored, [this, &job] {
      run();
      if (const auto once = std::exchange(meanwhile, nullptr)) once(job);
    });
    return restored;
  }
  Restored restore_all(ViewPoint point, bool exact = false) {
    return restore(point, whole_units(), exact);
  }
  std::vector<ckpt::UnitRange> whole_units() const {
    std::vector<ckpt::UnitRange> wants;
    for (ckpt::UnitId unit = 0; unit < units.size(); ++unit) {
      wants.push_back({unit, 0, units[unit].bytes});
    }
    return wants;
  }
  // Every want holds exactly the bytes of the version that is reported for it.
  void expect_true(const Restored& restored, const std::vector<ckpt::UnitRange>& wants) const {
    ASSERT_FALSE(restored.error.has_value()) << restored.error->message;
    EXPECT_TRUE(restored.last);
    for (size_t i = 0; i < wants.size(); ++i) {
      const ckpt::SnapshotKey& version = restored.served_by[i];
      const auto bytes = unit_bytes(units[wants[i].unit], {version.lineage, version.step});
      const auto part = ckpt::ByteView(bytes).subspan(wants[i].offset, wants[i].length);
      ASSERT_TRUE(std::equal(part.begin(), part.end(), restored.wants[i].begin()))
          << "want " << i << " unit " << units[wants[i].unit].name << " step " << version.step;
    }
  }

  VerifyReport verify(std::optional<ckpt::RunId> run_id = {}, std::optional<ViewPoint> point = {}) {
    std::vector<ckpt::RunId> runs;
    for (const RunInfo& run : context().catalog.runs()) {
      if (!run_id || run.id == *run_id) runs.push_back(run.id);
    }
    std::optional<VerifyReport> report;
    VerifyJob job(context(), runs, point, [&](VerifyReport done) { report = std::move(done); });
    job.start();
    EXPECT_FALSE(report.has_value()) << "a report inside start()";
    run();
    EXPECT_TRUE(report.has_value());
    return report.value_or(VerifyReport());
  }

  std::vector<ckpt::UnitSpec> units;
  MemoryDisk disk;
  std::unique_ptr<Executor> executor;

 private:
  FileId journal_file_;

 public:
  JournalWriter journal;
  Staging staging;
  Persist persist;
  Catalog catalog{make_memory_store()};
  SegmentReader segments;
  Sources sources;
  Staging::Granted granted;
  std::unique_ptr<SmallTrainer> trainer;
  RestoreClient client{[this](uint32_t slab) { return trainer->slab(slab); }};
  bool encode = false;  // applies to later commits
  DecodeMeter* meter = nullptr;
  // Runs during the next restore, once nothing else happens.
  std::function<void(RestoreJob&)> meanwhile;

 private:
  struct Slab {
    std::optional<uint32_t> slab;
    uint64_t used = 0;
    std::vector<ckpt::ExtentFragment> fragments;
  };

  FileId make_journal() {
    EXPECT_TRUE(disk.make_directory(kJournalDirectory).ok());
    return disk.open(kJournalPath, {.create = true, .preallocate_bytes = 1 << 20}).value();
  }
  void add(Slab& slab, ckpt::UnitId unit, uint64_t offset, ckpt::ByteView bytes, uint64_t align) {
    if (!slab.slab) {
      const auto leased = staging.lease(granted.arena, 1);
      ASSERT_EQ(leased.size(), 1u) << "out of slabs";
      slab.slab = leased.front();
      std::ranges::fill(trainer->slab(*slab.slab), std::byte{0});
    }
    const uint64_t at = ckpt::base::align_up(slab.used, align);
    std::ranges::copy(bytes, trainer->slab(*slab.slab).begin() + static_cast<ptrdiff_t>(at));
    slab.fragments.push_back({.unit = unit,
                              .offset = offset,
                              .length = bytes.size(),
                              .payload_offset = at,
                              .crc32c = ckpt::base::crc32c(bytes)});
    slab.used = at + bytes.size();
  }
  WrittenExtent write(ViewPoint point, Slab& slab) {
    std::optional<Result<WrittenExtent>> written;
    auto staged = staging.seal(granted.arena, slab.slab.value(), slab.used, slab.fragments);
    EXPECT_TRUE(staged.ok()) << staged.error().message;
    persist.write(
        key(point), 0, std::move(*staged),
        [&](Result<WrittenExtent> result) { written.emplace(std::move(result)); }, {},
        Persist::Afterwards::kHold,
        encode ? encode_all(std::make_shared<const std::vector<ckpt::UnitSpec>>(units)) : nullptr);
    run();
    slab = {};
    EXPECT_TRUE(written.has_value() && written->ok());
    return std::move(*written).value();
  }
  void finish(ViewPoint point, const std::vector<WrittenExtent>& extents, bool full) {
    fb::CommittedT body;
    body.run = kTestRun;
    body.lineage = point.lineage;
    body.epoch = 1;
    body.step = point.step;
    body.full = full;
    ckpt::fill_extents(extents, body);
    const fb::RecordT record = make_record(std::move(body));
    bool committed = false;
    persist.commit(
        key(point), [&record] { return record; },
        [&](Result<uint64_t> result) { committed = result.ok(); });
    run();
    ASSERT_TRUE(committed);
    apply(record);
  }

  uint64_t next_sequence_ = 1;
};

// Units of a small model: from one byte to more than a slab.
inline std::vector<ckpt::UnitSpec> restore_units() {
  std::vector<ckpt::UnitSpec> units = test_units(1, 2);
  units[0].bytes = 100'000;
  units[1].bytes = 30'000;
  units[2].bytes = 4096;
  units[3].bytes = 1;
  for (auto& unit : units) unit.tensors.clear();
  return units;
}

}  // namespace ckptd
