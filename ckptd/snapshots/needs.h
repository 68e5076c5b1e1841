// Parts of the daemon that snapshots use, and the events that snapshots report.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "ckptd/codec/codec_choice.h"
#include "ckptd/group/group.h"
#include "ckptd/history/history.h"
#include "ckptd/loop/turn.h"
#include "ckptd/observe/snapshot_timings.h"
#include "ckptd/persist/persist.h"
#include "ckptd/restore/context.h"
#include "ckptd/sessions/replies.h"
#include "ckptd/sessions/session.h"
#include "ckptd/staging/staging.h"

namespace ckptd {

struct SnapshotOptions {
  std::chrono::milliseconds deadline{};    // from the first begin to the last seal
  CodecChoice codec = CodecChoice::kNone;  // of units for which no trainer chooses one
  uint64_t dedup_bytes_min = 0;            // minimum stretch of unchanged bytes for dedup
  // Clock for the parts of a snapshot (observe/snapshot_timings.h).
  std::function<std::chrono::nanoseconds()> stopwatch = monotonic_time;
};

// All references and functions outlive Snapshots.
struct SnapshotNeeds {
  const Turn& turn;
  History& history;
  Sessions& sessions;
  const Replies& replies;
  Staging& staging;
  Persist& persist;
  RestoreContext earlier;  // reads earlier versions back
  SnapshotOptions options;

  // -- questions ---------------------------------------------------------------------------------
  // The session's last epoch (Groups::member).
  std::function<std::optional<Groups::Member>(ckpt::SessionId)> member;
  // Connected sessions whose last epoch is this one.
  std::function<std::vector<ckpt::SessionId>(ckpt::RunId, ckpt::Epoch)> members;
  std::function<bool()> is_draining;
  // True while deletions of the run are on their way to the journal.
  std::function<bool(ckpt::RunId)> is_deleting;

  // -- events ------------------------------------------------------------------------------------
  // A commit is durable; its members have not been notified yet.
  std::function<void(const std::string& run, const CommitInfo& commit)> on_durable;
  // Its members have been notified; `sequence` of its journal record.
  std::function<void(const ckpt::SnapshotKey&, uint64_t sequence)> on_committed;
  std::function<void(const ckpt::SnapshotKey&, const ckpt::Error&)> on_failed;
  // Committed or failed: at the end of the turn, work that waited for it may start.
  std::function<void()> on_ended;
  // Slabs of the arena may be leasable again.
  std::function<void(ArenaId)> on_slabs_freed;
  // Reads of earlier versions for a failed snapshot have ended.
  std::function<void()> on_reads_abandoned;
};

struct SnapshotCounters {
  uint64_t commits = 0;
  uint64_t commit_bytes = 0;
  uint64_t dedup_bytes = 0;  // deduplicated bytes, including those of failed snapshots
  uint64_t failed = 0;
  uint64_t skipped = 0;
  uint64_t lease_waits = 0;
  Time lease_wait_time{};
  Time level_lag{};                                  // from staged to durable, of all commits
  Time late_ranks{};                                 // waits for the last rank alone, likewise
  SnapshotHistograms parts;                          // of commits
  std::array<uint64_t, ckpt::kAlarmKinds> alarms{};  // by AlarmKind
};

// True if deletions of the run are on their way to the journal, or the index lacks some record: no
// new reference to any version of the run may be made.
inline bool versions_change(const SnapshotNeeds& needs, ckpt::RunId run) {
  return needs.is_deleting(run) || !needs.history.current();
}

}  // namespace ckptd
