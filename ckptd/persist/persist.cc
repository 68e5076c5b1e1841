#include "ckptd/persist/persist.h"

#include <algorithm>

#include "ckptd/limits.h"
#include "ckptd/persist/persist_impl.h"
#include "formats/base/checked.h"

namespace ckptd {

using ckpt::ErrorCode;

Persist::Impl::Impl(Disk& with_disk, Executor& with_executor, JournalWriter& with_journal,
                    const Options& with)
    : disk(with_disk),
      executor(with_executor),
      journal(with_journal),
      options(with),
      segments(
          with_disk, with_executor,
          {.store = with.store,
           .first = with.first_segment,
           .segment_bytes = with.segment_bytes,
           .reserve_bytes = with.reserve_bytes},
          [this](Segment& segment) {
            if (segment.failed.has_value())
              fail_segment(segment, disk_failed_error(*segment.failed));
            start_round();
            segments.close_if_done(segment.id);
          },
          [this] { pump(); }),
      next_sequence(with.first_sequence) {}

Persist::Persist(Disk& disk, Executor& executor, JournalWriter& journal, const Options& options)
    : impl_(std::make_unique<Impl>(disk, executor, journal, options)) {}

Persist::~Persist() { CKPT_ASSERT_MSG(impl_->closed, "persist was destroyed before close()"); }

Result<DiskRoom> Persist::Impl::room() const {
  DiskRoom room;
  CKPT_ASSIGN(room.space, disk.space());
  room.reserve_bytes = options.reserve_bytes;
  room.prepared_bytes = segments.unplaced_bytes(room.space.free_bytes);
  for (const auto& [key, writes] : snapshots) room.promised_bytes += writes.reserved_bytes;
  room.journal_has_room = !journal.lacks_room(record_bytes_promised());
  return room;
}

uint64_t Persist::Impl::record_bytes_promised() const {
  uint64_t bytes = 0;
  for (const auto& [key, writes] : snapshots) bytes += writes.reserved_record_bytes;
  return bytes;
}

// A snapshot larger than the disk is no evidence of a full disk.
ckpt::Error Persist::Impl::refuse_space(const ckpt::SnapshotKey& snapshot,
                                        const DiskShortage& shortage) {
  const uint64_t most = shortage.room.space.total_bytes -
                        std::min(shortage.room.space.total_bytes, options.reserve_bytes);
  if (shortage.needed_bytes <= most) shortages.note(snapshot, shortage);
  return disk_full_error(shortage);
}

// The next snapshot needs all of its space, not only that of the piece that found none.
ckpt::Error Persist::Impl::name_cause(const ckpt::Error& error, const ckpt::SnapshotKey& snapshot,
                                      uint64_t bytes) {
  if (error.code != ErrorCode::kResourceExhausted) return disk_failed_error(error);
  const auto now = room();
  if (!now.ok()) return error;
  const auto known = snapshots.find(snapshot);
  const uint64_t whole = known == snapshots.end() ? 0 : known->second.whole_bytes;
  shortages.note(snapshot,
                 {.room = *now, .needed_bytes = std::max(bytes, whole), .of_journal = false});
  return disk_full_error(*now, error, ckpt::ErrorDetail::kDiskFull);
}

Result<DiskRoom> Persist::room() const { return impl_->room(); }

Result<std::optional<DiskShortage>> Persist::shortage() {
  CKPT_ASSIGN(DiskRoom room, impl_->room());
  return impl_->shortages.now(std::move(room),
                              [this](uint64_t bytes) { return impl_->journal.lacks_room(bytes); });
}

void Persist::forget_shortages() { impl_->shortages.forget(); }

void Persist::forget_shortage(ckpt::RunId run) { impl_->shortages.forget(run); }

Status Persist::reserve(const ckpt::SnapshotKey& snapshot, uint64_t bytes, uint64_t record_bytes,
                        uint64_t whole_bytes) {
  CKPT_ASSIGN(const std::optional<DiskShortage> lack,
              impl_->reserve(snapshot, bytes, record_bytes, whole_bytes));
  if (lack) return impl_->refuse_space(snapshot, *lack);
  return {};
}

bool Persist::try_reserve(const ckpt::SnapshotKey& snapshot, uint64_t bytes,
                          uint64_t record_bytes) {
  const auto lack = impl_->reserve(snapshot, bytes, record_bytes, 0);
  return lack.ok() && !lack->has_value();
}

Result<std::optional<DiskShortage>> Persist::Impl::reserve(const ckpt::SnapshotKey& snapshot,
                                                           uint64_t bytes, uint64_t record_bytes,
                                                           uint64_t whole_bytes) {
  CKPT_TRY(journal.health());
  const uint64_t records_promised = record_bytes_promised();
  const bool journal_has_room = journal.has_room(records_promised + record_bytes);
  CKPT_ASSIGN(DiskRoom now, room());
  if (!journal_has_room) {
    return std::optional(DiskShortage{
        .room = now, .needed_bytes = records_promised + record_bytes, .of_journal = true});
  }
  // The reservations of the other members are needed as well, and released if this one is refused.
  const auto known = snapshots.find(snapshot);
  const SnapshotWrites none;
  const SnapshotWrites& before = known == snapshots.end() ? none : known->second;
  now.promised_bytes -= std::min(now.promised_bytes, before.reserved_bytes);
  const auto needed = ckpt::base::checked_add(bytes, before.reserved_bytes);
  const uint64_t asked = ckpt::base::checked_add(bytes, before.asked_bytes).value_or(UINT64_MAX);
  const uint64_t whole = std::max({asked, before.whole_bytes, whole_bytes});
  if (!needed || now.available_bytes() < *needed) {
    return std::optional(DiskShortage{.room = now, .needed_bytes = whole, .of_journal = false});
  }
  SnapshotWrites& writes = snapshots[snapshot];
  writes.reserved_bytes += bytes;
  writes.reserved_record_bytes += record_bytes;
  writes.asked_bytes = asked;
  writes.whole_bytes = whole;
  segments.prepare_ahead();
  return std::optional<DiskShortage>();
}

void Persist::release_reservation(const ckpt::SnapshotKey& snapshot) {
  const auto found = impl_->snapshots.find(snapshot);
  if (found == impl_->snapshots.end()) return;
  SnapshotWrites& writes = found->second;
  writes.reserved_bytes = 0;
  writes.reserved_record_bytes = 0;
  const bool unused = writes.writes_open.none() && writes.slabs.empty() && writes.kept.empty() &&
                      writes.unsynced.empty() && !writes.committing;
  if (unused) impl_->snapshots.erase(found);
}

void Persist::write(const ckpt::SnapshotKey& snapshot, ckpt::Rank rank, StagedSlab slab,
                    std::function<void(Result<WrittenExtent>)> on_done, PayloadObserver observer,
                    Afterwards afterwards, EncodePlan encode_plan,
                    const std::vector<bool>& left_out, std::shared_ptr<BaseSource> bases) {
  CKPT_ASSERT(!impl_->closed);
  auto write = std::make_shared<ExtentWrite>();
  write->snapshot = snapshot;
  write->slab = std::move(slab);
  write->frees = afterwards == Afterwards::kFree;
  write->on_done = std::move(on_done);
  write->observer = std::move(observer);
  write->extent.rank = rank;
  write->units = std::move(encode_plan);
  write->bases = std::move(bases);
  write->take_parts(left_out);
  SnapshotWrites& writes = impl_->snapshots[snapshot];
  // Fragments that are not written need no space.
  const uint64_t spared = write->slab.payload().size() - write->padded_bytes();
  writes.reserved_bytes -= std::min(writes.reserved_bytes, spared);
  writes.writes_open.begun();
  writes.active.push_back(write);
  impl_->writes_open.begun();
  if (write->parts.parts.empty()) {
    write->slab.mark_writing();
    return impl_->check(write);
  }
  impl_->stats.bytes_queued += write->padded_bytes();
  if (write->units != nullptr) {
    impl_->to_encode.push_back(std::move(write));
    return impl_->start_encodes();
  }
  impl_->queue.push_back(std::move(write));
  impl_->pump();
}

void Persist::keep(const ckpt::SnapshotKey& snapshot, StagedSlab slab,
                   std::function<void(const Status&)> on_done, PayloadObserver observer) {
  CKPT_ASSERT(!impl_->closed);
  auto write = std::make_shared<ExtentWrite>();
  write->snapshot = snapshot;
  write->slab = std::move(slab);
  write->kept = true;
  write->on_done = [on_done = std::move(on_done)](const Result<WrittenExtent>& checked) {
    on_done(checked.ok() ? Status() : Status(checked.error()));
  };
  write->observer = std::move(observer);
  SnapshotWrites& writes = impl_->snapshots[snapshot];
  writes.writes_open.begun();
  writes.active.push_back(write);
  impl_->writes_open.begun();
  impl_->check(write);
}

void Persist::abandon(const ckpt::SnapshotKey& snapshot) {
  const auto found = impl_->snapshots.find(snapshot);
  if (found == impl_->snapshots.end() || found->second.committing) return;
  impl_->abandon_writes(found->second);
  impl_->forget(snapshot);
  impl_->pump();
}

Persist::Stats Persist::stats() const {
  Stats stats = impl_->stats;
  stats.shortages = impl_->shortages.count();
  stats.bytes_in_flight = impl_->bytes_in_flight.count();
  stats.disk_bytes_per_second = impl_->meter.bytes_per_second();
  return stats;
}

bool Persist::writes_to(ckpt::SegmentId segment) const { return impl_->segments.is_open(segment); }

bool Persist::idle() const {
  if (impl_->segments.making()) return false;
  if (!impl_->writes_open.none() || !impl_->commits_open.none()) return false;
  if (!impl_->syncs_in_flight.none()) return false;
  const auto segments = impl_->segments.all();
  return std::all_of(segments.begin(), segments.end(),
                     [](const Segment* segment) { return segment->writes_in_flight.none(); });
}

void Persist::close() {
  while (!idle()) {
    // Wait for whichever has work; a check may wait for a write and vice versa.
    if (impl_->disk.in_flight() > 0) {
      impl_->disk.wait();
      impl_->disk.reap();
    }
    if (impl_->executor.outstanding() > 0) {
      impl_->executor.wait();
      impl_->executor.reap();
    }
  }
  std::vector<ckpt::SnapshotKey> left;
  for (const auto& [key, writes] : impl_->snapshots) left.push_back(key);
  for (const ckpt::SnapshotKey& key : left) impl_->forget(key);
  impl_->segments.close();
  impl_->closed = true;
}

}  // namespace ckptd
