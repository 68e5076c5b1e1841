// From written extents to commits: rounds of syncs, shared by all commits that are ready.
#include <algorithm>
#include <utility>

#include "ckptd/limits.h"
#include "ckptd/persist/persist_impl.h"
#include "ckptd/safeguards.h"

namespace ckptd {

// One round at a time: commits that become ready while it runs share the next one. The journal
// append of one round overlaps with the syncs of the next.
void Persist::Impl::start_round() {
  if (ready.empty() || !syncing.empty()) return;
  std::set<ckpt::SegmentId> touched;
  for (const PendingCommit& commit : ready) {
    const auto& unsynced = snapshots.at(commit.snapshot).unsynced;
    touched.insert(unsynced.begin(), unsynced.end());
  }
  for (const ckpt::SegmentId id : touched) {
    const Segment& segment = segments.at(id);
    // A sync covers only completed writes: the completion of the header starts the round.
    if (!segment.header_written && !segment.failed.has_value()) return;
  }
  syncing = std::exchange(ready, {});
  round.clear();
  const bool waits = !left_out(Safeguard::kCommitOrder);
  syncs_in_flight.begun();  // one held by this function until all are submitted
  for (const ckpt::SegmentId id : touched) {
    Segment& segment = segments.at(id);
    if (segment.failed.has_value() || left_out(Safeguard::kSegmentSync)) continue;
    round.emplace(id, std::nullopt);
    if (waits) syncs_in_flight.begun();
    segment.writes_in_flight.begun();
    ++stats.syncs;
    disk.submit({.op = IoOp::kSync,
                 .file = segment.file,
                 .on_done = [this, &segment, waits](const Result<uint64_t>& result) {
                   segment.writes_in_flight.ended();
                   if (!waits) return segments.close_if_done(segment.id);
                   if (!result.ok()) round[segment.id] = disk_failed_error(result.error());
                   syncs_in_flight.ended();
                   if (syncs_in_flight.none()) round_synced();
                 }});
  }
  syncs_in_flight.ended();
  if (syncs_in_flight.none()) {
    // No sync to wait for, because every segment had failed: refuse from the loop, not from here.
    syncs_in_flight.begun();
    executor.run([] {},
                 [this] {
                   syncs_in_flight.ended();
                   round_synced();
                 });
  }
}

bool Persist::Impl::synced_in_round(const SnapshotWrites& snapshot) const {
  return std::all_of(snapshot.unsynced.begin(), snapshot.unsynced.end(),
                     [this](ckpt::SegmentId id) {
                       const auto found = round.find(id);
                       return found != round.end() && !found->second.has_value();
                     });
}

void Persist::Impl::round_synced() {
  // A failed flush discredits the whole device: every open segment is sealed off, and every
  // snapshot with unsynced extents fails. The kernel will not report the failure a second time.
  std::optional<ckpt::Error> failed;
  for (const auto& [id, error] : round) {
    if (error.has_value()) failed = error;
  }
  if (failed.has_value()) {
    std::set<ckpt::SnapshotKey> synced;
    for (const PendingCommit& commit : syncing) {
      if (synced_in_round(snapshots.at(commit.snapshot))) synced.insert(commit.snapshot);
    }
    fail_device(*failed, synced);
  }
  std::vector<PendingCommit> durable;
  for (PendingCommit& commit : std::exchange(syncing, {})) {
    const SnapshotWrites& snapshot = snapshots.at(commit.snapshot);
    if (snapshot.failed.has_value()) {
      ckpt::Error error = *snapshot.failed;
      refuse(commit, std::move(error));
    } else {
      CKPT_ASSERT_MSG(left_out(Safeguard::kSegmentSync) || synced_in_round(snapshot),
                      "a commit whose extents are not synced");
      durable.push_back(std::move(commit));
    }
  }
  if (!durable.empty()) append_round(std::move(durable));
  start_round();
}

void Persist::Impl::append_round(std::vector<PendingCommit> commits) {
  std::vector<ckpt::fb::RecordT> records;
  records.reserve(commits.size());
  for (PendingCommit& commit : commits) {
    records.push_back(commit.make_record());
    snapshots.at(commit.snapshot).reserved_record_bytes = 0;  // from here on the journal counts it
  }
  auto shared = std::make_shared<std::vector<PendingCommit>>(std::move(commits));
  journal.append(std::move(records), [this, shared](const Result<uint64_t>& first_sequence) {
    uint64_t index = 0;
    for (PendingCommit& commit : *shared) {
      if (!first_sequence.ok()) {
        note_journal_full(commit.snapshot, first_sequence.error());
        refuse(commit, first_sequence.error());
        continue;
      }
      // Moved out first: marking a slab durable may let the daemon lease it at once.
      std::vector<StagedSlab> slabs = std::move(snapshots.at(commit.snapshot).slabs);
      std::vector<StagedSlab> kept = std::move(snapshots.at(commit.snapshot).kept);
      forget(commit.snapshot);
      shortages.found_room(commit.snapshot);
      ++stats.commits;
      commits_open.ended();
      StagedSlab::mark_held(std::move(kept), commit.snapshot);
      for (StagedSlab& slab : slabs) slab.mark_durable(commit.snapshot);
      commit.on_done(*first_sequence + index++);
    }
  });
}

// A segment that lacked space has already noted its shortage in name_cause().
void Persist::Impl::note_journal_full(const ckpt::SnapshotKey& snapshot, const ckpt::Error& error) {
  if (error.code != ckpt::ErrorCode::kResourceExhausted) return;
  shortages.note(snapshot,
                 {.room = {}, .needed_bytes = limits::kJournalReserveMin, .of_journal = true});
}

// If the journal certainly has no record of the snapshot, its extents are dead: on a full disk that
// is the space which the journal lacked.
void Persist::Impl::refuse(const PendingCommit& commit, ckpt::Error error) {
  if (journal.health().ok()) {
    for (const ExtentPlace& extent : snapshots.at(commit.snapshot).placed) report_dead(extent);
  }
  forget(commit.snapshot);
  commits_open.ended();
  commit.on_done(std::move(error));
}

void Persist::Impl::forget(const ckpt::SnapshotKey& key) {
  const auto found = snapshots.find(key);
  if (found == snapshots.end()) return;
  const SnapshotWrites snapshot = std::move(found->second);
  snapshots.erase(found);
  for (const ckpt::SegmentId id : snapshot.unsynced) {
    segments.at(id).unsynced_snapshots.ended();
    segments.close_if_done(id);
  }
}

void Persist::commit(const ckpt::SnapshotKey& snapshot,
                     std::function<ckpt::fb::RecordT()> make_record,
                     std::function<void(Result<uint64_t>)> on_done) {
  SnapshotWrites& writes = impl_->snapshots[snapshot];
  CKPT_ASSERT_MSG(writes.writes_open.none(), "commit before all extents were written");
  CKPT_ASSERT_MSG(!writes.committing, "committed twice");
  writes.committing = true;
  impl_->commits_open.begun();
  impl_->ready.push_back(
      {.snapshot = snapshot, .make_record = std::move(make_record), .on_done = std::move(on_done)});
  impl_->start_round();
}

}  // namespace ckptd
