// The daemon's state of each session, snapshot, restore and query. Private to the sources
// daemon_*.cc.
#pragma once

#include <array>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "ckptd/alarms/judge.h"
#include "ckptd/alarms/not_finite.h"
#include "ckptd/alarms/unit_flags.h"
#include "ckptd/codec/slab_encoder.h"
#include "ckptd/gc/gc.h"
#include "ckptd/holds/holds.h"
#include "ckptd/observe/run_progress.h"
#include "ckptd/observe/snapshot_timings.h"
#include "ckptd/persist/persist.h"
#include "ckptd/restore/restore.h"
#include "ckptd/restore/restore_speeds.h"
#include "ckptd/same/base_reader.h"
#include "ckptd/same/comparer.h"
#include "ckptd/same/newest_fragments.h"
#include "ckptd/staging/staging.h"
#include "formats/plan.h"
#include "formats/wire/wire_generated.h"

namespace ckptd {

namespace fb = ckpt::fb;
using ckpt::SessionId;
using ckpt::SnapshotKey;

// Slabs that a member requested and has not received yet.
struct LeaseWait {
  SnapshotKey snapshot;
  uint64_t request = 0;
  uint32_t count = 0;
  Time since{};
};

struct Restore {
  uint64_t request = 0;  // of OpenRestore: errors are sent to it
  uint64_t reader = 0;   // its number among all jobs that read
  Time since{};
  RestoreSpeeds::Bytes given;
  std::vector<ckpt::UnitRange> wants;
  std::set<ckpt::UnitId> warned;  // units whose fallback was logged
  std::unique_ptr<RestoreJob> job;
};

// Waits and restores of a connected session.
struct SessionWork {
  std::deque<LeaseWait> lease_waits;
  std::map<uint64_t, Restore> restores;
  std::vector<fb::OpenRestoreT> waiting_restores;  // for snapshots that earlier epochs staged
};

// Older versions whose extents this snapshot may reference (dedup; daemon_same.cc).
struct SameVersions {
  std::set<std::pair<ViewPoint, ckpt::UnitId>> held;  // must not be deleted
  std::set<ViewPoint> commits;                        // commits of the held versions
  // All extents of these commits, by segment and offset, with the fragments that need no write.
  std::map<std::pair<ckpt::SegmentId, uint64_t>, WrittenExtent> extents;
  size_t fragments = 0;  // upper bound for their fragments
  // Bases of pieces that may become deltas, or of existing deltas that need no write.
  ckpt::WrittenBases bases = {};
};

// Result of recovery's check of a commit's extents.
struct RecoveryCheck {
  std::optional<fb::RecordT> damaged;  // the CommitDamaged record
  bool unread = false;                 // its extents could not be checked
  std::string reason;                  // of `damaged` or `unread`
};

// The daemon's state of a snapshot that is open in ingest.
struct OpenSnapshotState {
  struct Share {
    std::set<uint32_t> leased;  // with the client
    uint32_t held = 0;          // leased or sealed, for this snapshot
    bool streams = false;       // each slab is free again once it is written
  };
  std::string run_name;
  std::map<SessionId, Share> shares;
  std::vector<WrittenExtent> extents;
  SameVersions same;
  uint64_t bytes = 0;  // of sealed fragments for the disk
  Time staged_at{};    // when everything was sealed
  SnapshotTimer timer;

  bool codecs_chosen = false;  // set when its first member begins
  EncodePlan encode_plan;      // for all its slabs; null: no unit is encoded

  fb::AlarmPolicy alarm_policy = fb::AlarmPolicy::Off;  // the strictest of its members
  ckpt::Step staleness_max = 0;                         // the smallest; 0: no limit
  std::vector<std::shared_ptr<NotFiniteScan>> scans;    // one per extent
  SnapshotFacts facts;                                  // set just before the commit
  std::string alarms;                                   // text for messages
};

// The last version of every unit of a run in one line of history, and the cuts of those versions
// that have several pieces, as far as known.
struct RunNewest {
  ckpt::LineageId lineage = 0;
  NewestVersions versions;
  NewestFragments cuts;
};

struct WaitingBegin {
  SessionId session = 0;
  fb::BeginSnapshotT message;
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

// A run's newest commit as shown in status and metrics.
RunProgress::Durable durable_of(const CommitInfo& commit);  // daemon_metrics.cc

struct Counters {
  uint64_t commits = 0;
  uint64_t commit_bytes = 0;
  uint64_t same_bytes = 0;  // deduplicated bytes, including those of failed snapshots
  uint64_t snapshots_failed = 0;
  uint64_t snapshots_skipped = 0;
  uint64_t lease_waits = 0;
  Time lease_wait_time{};
  Time level_lag{};  // from staged to durable, of all commits
  SnapshotHistograms snapshot_parts;
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
  uint64_t arenas_adopted = 0;
  uint64_t slabs_taken_back = 0;      // at startup, from a keeper
  uint64_t slabs_not_taken_back = 0;  // likewise: failed a check
  uint64_t protocol_errors = 0;
  std::array<uint64_t, ckpt::kAlarmKinds> alarms{};  // by AlarmKind
};

// kInvalidArgument unless a trainer's codecs cover all of its units, and are known
// (daemon_codec.cc).
ckpt::Status check_unit_codecs(const fb::RegisterUnitsT& message);

}  // namespace ckptd
