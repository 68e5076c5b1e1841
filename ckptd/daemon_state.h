// The daemon's state of each session, restore and query. Private to the sources daemon_*.cc.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "ckptd/gc/gc.h"
#include "ckptd/holds/holds.h"
#include "ckptd/observe/run_progress.h"
#include "ckptd/persist/persist.h"
#include "ckptd/restore/restore.h"
#include "ckptd/restore/restore_speeds.h"
#include "ckptd/staging/staging.h"
#include "formats/plan.h"
#include "formats/wire/wire_generated.h"

namespace ckptd {

namespace fb = ckpt::fb;
using ckpt::SessionId;
using ckpt::SnapshotKey;

struct Restore {
  uint64_t request = 0;  // of OpenRestore: errors are sent to it
  uint64_t reader = 0;   // its number among all jobs that read
  Time since{};
  RestoreSpeeds::Bytes given;
  std::vector<ckpt::UnitRange> wants;
  std::set<ckpt::UnitId> warned;  // units whose fallback was logged
  std::unique_ptr<RestoreJob> job;
};

// Restores of a connected session.
struct SessionWork {
  std::map<uint64_t, Restore> restores;
  std::vector<fb::OpenRestoreT> waiting_restores;  // for snapshots that earlier epochs staged
};

// Result of recovery's check of a commit's extents.
struct RecoveryCheck {
  std::optional<fb::RecordT> damaged;  // the CommitDamaged record
  bool unread = false;                 // its extents could not be checked
  std::string reason;                  // of `damaged` or `unread`
};

// A run whose first registration is being written.
struct CreatingRun {
  uid_t uid = 0;
  std::vector<ckpt::UnitSpec> units;
  std::vector<std::pair<SessionId, uint64_t>> waiting;  // session, request
};

struct Verify {
  SessionId session = 0;
  uint64_t request = 0;
  uint64_t reader = 0;                       // as in Restore
  HoldId hold = 0;                           // of the view being read; 0: whole runs
  std::vector<std::string> whole_runs = {};  // names; the empty one is the journal
  uint64_t began_ns = 0;                     // wall clock
  std::unique_ptr<VerifyJob> job;
};

// A change of history that a client requested.
struct Administration {
  SessionId session = 0;
  uint64_t request = 0;
  std::string verb;
  std::string args;
  // Instead of a verb: units of a run that replaces a run of the same name.
  std::shared_ptr<const fb::RegisterUnitsT> registration = nullptr;
};

// Space that can be reclaimed now.
struct GcRound {
  std::vector<GcTask> tasks;
  std::set<ckpt::SegmentId> removable;
  bool more = false;
};

// A client that requested gc, and the reclaimed bytes at that time.
struct GcAsker {
  SessionId session = 0;
  uint64_t request = 0;
  uint64_t freed_bytes = 0;
  uint64_t segments_removed = 0;
};

// A run's newest commit as shown in status and metrics.
RunProgress::Durable durable_of(const CommitInfo& commit);  // daemon_metrics.cc

struct Counters {
  uint64_t epochs_opened = 0;
  uint64_t epochs_ended = 0;
  uint64_t restores = 0;
  Time restore_time{};
  RestoreSpeeds restore_speeds;
  uint64_t restore_bytes_memory = 0;
  uint64_t restore_bytes_segment = 0;
  uint64_t restore_bytes_located = 0;
  uint64_t restore_fallbacks = 0;
  uint64_t verify_errors = 0;
  uint64_t commits_deleted = 0;
  uint64_t holds_overdue = 0;  // ended because their readers made no progress
  uint64_t holds_forced = 0;   // ended by root
  uint64_t freed_bytes = 0;
  uint64_t segments_removed = 0;
  uint64_t gc_errors = 0;
  uint64_t members_lost = 0;
  uint64_t arenas_adopted = 0;
  uint64_t slabs_taken_back = 0;      // at startup, from a keeper
  uint64_t slabs_not_taken_back = 0;  // likewise: failed a check
  uint64_t protocol_errors = 0;
};

}  // namespace ckptd
