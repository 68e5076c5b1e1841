// What the daemon keeps for each session, snapshot, restore and question. Private to the sources
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

// Slabs that a member asked for and did not get yet.
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

struct Session {
  SessionId id = 0;
  uid_t uid = 0;
  pid_t pid = 0;
  bool greeted = false;
  uint32_t protocol = 0;  // version of wire.fbs that its messages follow, once greeted
  fb::SessionKind kind = fb::SessionKind::Control;
  std::string client;
  Time connected_at{};
  bool wanted_told = false;  // the log has said that another session waits for its place
  std::string run_name;
  fb::AlarmPolicy alarms = fb::AlarmPolicy::Off;  // its own, or the configuration's
  std::optional<ckpt::RunId> run;                 // once registered
  std::optional<ArenaId> arena;
  bool handing_back = false;  // its arena is of the last daemon: seals may come before leases
  std::deque<LeaseWait> lease_waits;
  std::map<uint64_t, Restore> restores;
  std::vector<fb::OpenRestoreT> waiting_restores;  // for what earlier epochs of its run had staged
};

// Versions that have bytes which a snapshot has, too, or may have (daemon_same.cc).
struct SameVersions {
  std::set<std::pair<ViewPoint, ckpt::UnitId>> held;  // not to be deleted
  std::set<ViewPoint> commits;                        // theirs
  // All extents of these, by segment and offset; with the fragments that need not be written.
  std::map<std::pair<ckpt::SegmentId, uint64_t>, WrittenExtent> extents;
  size_t fragments = 0;  // that there may come to be in them
  // Of pieces that may become deltas, or are deltas that need not be written.
  WrittenBases bases = {};
};

// Recovery's look at the extents of a commit.
struct RecoveryCheck {
  std::optional<fb::RecordT> damaged;  // the record that says so
  bool unread = false;                 // its extents could not be checked
  std::string reason;                  // of either
};

// What the daemon holds for a snapshot that ingest knows to be open.
struct OpenSnapshotState {
  struct Share {
    std::set<uint32_t> leased;  // with the client
    uint32_t held = 0;          // leased or sealed, for this snapshot
    bool streams = false;       // a slab is free again as soon as it is written
  };
  std::string run_name;
  std::map<SessionId, Share> shares;
  std::vector<WrittenExtent> extents;
  SameVersions same;
  uint64_t bytes = 0;  // of the sealed fragments that the disk is to have
  Time staged_at{};    // when all of it was sealed

  bool codecs_chosen = false;  // when its first member began
  EncodePlan encode_plan;      // of all its slabs; null: no unit is encoded

  fb::AlarmPolicy alarm_policy = fb::AlarmPolicy::Off;  // the strictest of its members'
  ckpt::Step staleness_max = 0;                         // the smallest; 0: any
  std::vector<std::shared_ptr<NotFiniteScan>> scans;    // one for each extent
  SnapshotFacts facts;                                  // once it is about to be committed
  std::string alarms;                                   // what is told of it
};

// What every unit of a run last was, in one line of history, and how those versions are cut that
// are in several pieces, as far as that is known.
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
  uint64_t reader = 0;                       // as of a Restore
  HoldId hold = 0;                           // of the view that is read; 0: it is whole runs
  std::vector<std::string> whole_runs = {};  // their names; the empty one stands for the journal
  uint64_t began_ns = 0;                     // wall clock
  std::unique_ptr<VerifyJob> job;
};

// Records of one append that are being applied, and what comes behind them (daemon_apply.cc).
struct DurableBatch {
  uint64_t first_sequence = 0;
  std::shared_ptr<const std::vector<fb::RecordT>> records;
  size_t applied = 0;
  std::function<void(const Status&)> then;
};
struct Durable {
  std::optional<DurableBatch> batch;
  std::deque<std::function<void()>> waiting;  // in the order of the journal
  bool turn_asked = false;                    // the loop comes back for them
  bool at_once = false;                       // all is to end
};

// A change of history that somebody asked for.
struct Administration {
  SessionId session = 0;
  uint64_t request = 0;
  std::string verb;
  std::string args;
  // Instead of a verb: units of a run that take the place of a run of the same name.
  std::shared_ptr<const fb::RegisterUnitsT> registration = nullptr;
};

// What may be given back now.
struct GcRound {
  std::vector<GcTask> tasks;
  std::set<ckpt::SegmentId> removable;
  bool more = false;
};

// Who asked to give space back, and what had been given back until then.
struct GcAsker {
  SessionId session = 0;
  uint64_t request = 0;
  uint64_t freed_bytes = 0;
  uint64_t segments_removed = 0;
};

// What status and metrics say of a run's newest commit.
RunProgress::Durable durable_of(const CommitInfo& commit);  // daemon_metrics.cc

struct Counters {
  uint64_t commits = 0;
  uint64_t commit_bytes = 0;
  uint64_t same_bytes = 0;  // of them, or of snapshots that failed: those that were there already
  uint64_t snapshots_failed = 0;
  uint64_t snapshots_skipped = 0;
  uint64_t lease_waits = 0;
  Time lease_wait_time{};
  Time level_lag{};  // from staged to durable, of all commits
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
  uint64_t holds_overdue = 0;  // that ended since their readers made no progress
  uint64_t holds_forced = 0;   // that root ended
  uint64_t freed_bytes = 0;
  uint64_t segments_removed = 0;
  uint64_t gc_errors = 0;
  uint64_t members_lost = 0;
  uint64_t arenas_adopted = 0;
  uint64_t slabs_taken_back = 0;      // at the start, from a keeper
  uint64_t slabs_not_taken_back = 0;  // likewise: they were not believed
  uint64_t protocol_errors = 0;
  std::array<uint64_t, ckpt::kAlarmKinds> alarms{};  // by AlarmKind
};

// kInvalidArgument unless the codecs that a trainer asks for are those of all its units, and known
// (daemon_codec.cc).
ckpt::Status check_unit_codecs(const fb::RegisterUnitsT& message);

}  // namespace ckptd
