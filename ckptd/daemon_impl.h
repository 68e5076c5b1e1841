// Shared by the sources daemon_*.cc, and private to them:
//
//   daemon, _dispatch           public interface, poll and tick, drain; dispatch of messages
//   _open, _salvage             recovery; a damaged journal
//   _sessions, _epochs, _handback  sessions and groups; return of clients after a restart
//   _begin, _snapshots, _alarms, _codec, _delta, _same  a snapshot from its begin to its commit
//   _restore, _holds, _gc, _scrub  restores, holds; dead space; background work
//   _queries, _status, _metrics, _health  queries; reports
//   _wire_FOLDER                needs of the module in that folder
//
// All runs on the loop thread: callbacks in poll(), follow-up work in settle(), no recursion.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "ckptd/administration/administration.h"
#include "ckptd/alarms/judge.h"
#include "ckptd/catalog/salvage.h"
#include "ckptd/daemon.h"
#include "ckptd/daemon_health.h"
#include "ckptd/daemon_state.h"
#include "ckptd/gc/dead_records.h"
#include "ckptd/gc/gc.h"
#include "ckptd/group/group.h"
#include "ckptd/history/history.h"
#include "ckptd/history/run_gate.h"
#include "ckptd/holds/holds.h"
#include "ckptd/ingest/ingest.h"
#include "ckptd/limits.h"
#include "ckptd/persist/persist.h"
#include "ckptd/query/query.h"
#include "ckptd/restore/restore.h"
#include "ckptd/runs/run_registry.h"
#include "ckptd/scrub/scrub.h"
#include "ckptd/sessions/access.h"
#include "ckptd/sessions/replies.h"
#include "ckptd/sessions/session.h"
#include "ckptd/staging/staging.h"
#include "formats/wire/convert.h"

namespace ckptd {

namespace fb = ckpt::fb;
using ckpt::Error;
using ckpt::ErrorCode;
using ckpt::make_error;
using ckpt::SessionId;
using ckpt::SnapshotKey;

struct Daemon::Impl {
  // -- start and end (daemon_open.cc, daemon.cc) -------------------------------------------------
  Impl(const Parts& with_parts, const Options& with_options);
  Status open();
  Status recover_runs(RecoveredStore& store);
  bool reclaim(ListedExtents listed);
  void on_record(const fb::RecordT& record);
  Result<bool> finish_salvage();
  Status catch_up_behind(RecoveredStore& store);
  Result<bool> salvage(RecoveredStore& store);
  Status write_new_journal(const RecoveredStore& damaged, const Salvage& salvage);
  Status mark_damaged(const std::vector<SnapshotKey>& replayed);
  Result<RecoveryCheck> check_commit(const Catalog& index, const SnapshotKey& key, ExtentPart part,
                                     bool log_at_debug);
  void open_staging();
  void open_readers_back();
  void take_back_memory();
  void settle();
  void step_drain();
  void close();
  // Closes a RestoreJob or VerifyJob and keeps it until its reads are over; then runs `then`.
  template <typename Job>
  void close_job(std::unique_ptr<Job> job, std::function<void()> then) {
    const uint64_t id = next_closing_job++;
    const std::shared_ptr<Job> kept = std::move(job);
    closing_jobs.emplace(id, kept);
    kept->close([this, id, then = std::move(then)] {
      turn.defer([this, id, then] {
        closing_jobs.erase(id);
        if (then) then();
      });
    });
  }
  // -- sessions (daemon_sessions.cc) -------------------------------------------------------------
  void dispatch(Session& session, fb::MessageT& message, ckpt::base::UniqueFd fd);
  bool dispatch_group(Session& session, fb::MessageT& message);
  bool dispatch_snapshot(Session& session, fb::MessageT& message);
  bool dispatch_other(Session& session, fb::MessageT& message);
  void hello(Session& session, const fb::HelloT& message, ckpt::base::UniqueFd fd);
  void warm_memory();
  Status grant_arena(Session& session, const fb::HelloT& message, ckpt::base::UniqueFd fd,
                     fb::WelcomeT& welcome, int* fd_to_send);
  RunRegistry::Needs runs_needs();  // daemon_wire_runs.cc
  void disconnected(SessionId session, const std::string& reason);
  // -- epochs (daemon_epochs.cc) -----------------------------------------------------------------
  void join(Session& session, const fb::JoinGroupT& message);
  std::string describe_holder(ckpt::RunId run,
                              const JoinRequest& request) const;  // daemon_joins.cc
  void tell_place_is_held(const Session& asker, const JoinRequest& request);
  void leave_group(const Session& session);
  QueryAnswer query_join(const Session& session) const;
  void carry_out(const Groups::Actions& actions);
  std::string run_name(ckpt::RunId run) const;
  void carry_out(const Groups::EndEpoch& action);
  void carry_out(const Groups::OpenEpoch& action);
  void carry_out(const Groups::JoinersWaiting& action);
  void try_open_epoch(ckpt::RunId run);
  void write_epoch(const Groups::OpenEpoch& open, const std::optional<ViewPoint>& resume,
                   const RunInfo& info);
  Result<std::optional<ViewPoint>> choose_resume(const RunInfo& run, const JoinRequest& resume);
  Result<std::optional<ViewPoint>> resume_at(const RunInfo& run, const JoinRequest& resume);
  void epoch_opened(const Groups::OpenEpoch& open, const fb::EpochOpenedT& record,
                    const Status& status);
  void drop_other_memory(ckpt::RunId run, const std::optional<ViewPoint>& resume);
  void kv_set(Session& session, fb::KvSetT& message);
  void kv_get(Session& session, const fb::KvGetT& message);
  // -- snapshots: beginning (daemon_begin.cc) ----------------------------------------------------
  // The snapshot of a member's message. Fails if the session is no member of that epoch.
  Result<SnapshotKey> member_key(const Session& session, ckpt::Epoch epoch, ckpt::Step step,
                                 uint32_t attempt) const;
  void begin_snapshot(Session& session, const fb::BeginSnapshotT& message);
  Result<bool> wait_to_begin(const Session& session, const SnapshotKey& key,
                             const fb::BeginSnapshotT& message);
  Status check_begin(const Session& session, const SnapshotKey& key,
                     const fb::BeginSnapshotT& message);
  Status check_tokens(const SnapshotKey& key, const fb::BeginSnapshotT& message);
  void refuse_snapshot(const SnapshotKey& key, const std::string& run_name, const Error& error);
  Result<Ingest::Begin> make_begin(const Session& session, const SnapshotKey& key,
                                   const fb::BeginSnapshotT& message) const;
  void unpin_memory_if_begun(const SnapshotKey& key);
  Status reserve_disk(const Session& session, const SnapshotKey& key,
                      const fb::BeginSnapshotT& message);
  Status reserve_and_lease(Session& session, const SnapshotKey& key,
                           const fb::BeginSnapshotT& message);
  void lease_slabs(Session& session, const fb::LeaseSlabsT& message);
  Status add_lease_wait(Session& session, const LeaseWait& wait);
  void serve_lease_waits(Session& session);
  void retry_waiting_begins();
  // -- snapshots: the rest (daemon_snapshots.cc) -------------------------------------------------
  void seal_slab(Session& session, const fb::SealSlabT& message);
  Result<StagedSlab> take_over(Session& session, const SnapshotKey& key,
                               const fb::SealSlabT& message);
  void keep_or_write(SessionId session, const SnapshotKey& key, ckpt::Rank rank, StagedSlab slab,
                     bool memory_only);
  void keep(const SnapshotKey& key, StagedSlab slab);
  void write(SessionId session, const SnapshotKey& key, ckpt::Rank rank, StagedSlab slab,
             const std::vector<bool>& left_out);
  void abort_snapshot(Session& session, const fb::AbortSnapshotT& message);
  void carry_out(const Ingest::Actions& actions);
  void carry_out(const Ingest::CommitAction& action);
  void carry_out(const Ingest::FailAction& action);
  void committed(const SnapshotKey& key, const fb::RecordT& record, const Result<uint64_t>& result);
  void announce(const SnapshotKey& key, fb::SnapshotLevel level, uint64_t bytes, const Error* error,
                const std::string& alarms = {});
  void forget_snapshot(const SnapshotKey& key);
  // -- bytes that are on the disk already (daemon_same.cc) ---------------------------------------
  bool changing(ckpt::RunId run) const;
  void add_to_newest_cuts(const SnapshotKey& key, const std::vector<WrittenExtent>& extents,
                          RunNewest& newest);
  std::vector<SameCandidate> find_same(const SnapshotKey& key, const StagedSlab& slab);
  bool hold_version(const SnapshotKey& key, const UnitVersion& version,
                    std::span<const FragmentPlace> places);
  std::vector<SameExtent> extents_of(const SnapshotKey& key,
                                     const std::vector<SameCandidate>& candidates) const;
  std::vector<SameExtent> extents_at(
      const SnapshotKey& key, const std::set<std::pair<ckpt::SegmentId, uint64_t>>& places) const;
  bool reserve_shared(const SnapshotKey& key, const std::vector<SameCandidate>& candidates,
                      const std::vector<bool>& left_out);
  std::vector<bool> share_same(const SnapshotKey& key, const StagedSlab& slab,
                               const std::vector<SameCandidate>& candidates,
                               const std::vector<bool>& same);
  static void list_shared_extents(OpenSnapshotState& open);
  // -- deltas (daemon_delta.cc) ------------------------------------------------------------------
  static void note_base(OpenSnapshotState& open, const ckpt::ExtentFragment& fragment,
                        const BasePlace& base);
  std::shared_ptr<BaseSource> find_bases(const SnapshotKey& key, const StagedSlab& slab,
                                         const std::vector<bool>& left_out);
  std::vector<HeldVersion> versions_held(ckpt::RunId run) const;
  // -- alarms (daemon_alarms.cc) -----------------------------------------------------------------
  void note_alarms(const Session& session, const SnapshotKey& key,
                   const fb::BeginSnapshotT& message);
  PayloadObserver observe_floats(const SnapshotKey& key,
                                 const std::shared_ptr<NotFiniteScan>& scan) const;
  const NewestVersions& newest_of_run(const SnapshotKey& key, size_t units);
  void add_to_newest(const SnapshotKey& key, const OpenSnapshotState& open);
  void forget_newest_if_ended(const SnapshotKey& key);
  ckpt::AlarmList raise_alarms(const Ingest::CommitAction& action);
  void refuse_commit(const SnapshotKey& key, const ckpt::AlarmList& alarms);
  // -- codecs (daemon_codec.cc) ------------------------------------------------------------------
  void note_registration(const std::string& run, const fb::RegisterUnitsT& message);
  void forget_registration(const std::string& run);
  void choose_codecs(const SnapshotKey& key);
  // -- coming back (daemon_handback.cc) ----------------------------------------------------------
  void rejoin(Session& session, const fb::RejoinEpochT& message);
  void end_rejoins();
  void reopen(Session& session, const fb::ReopenSnapshotT& message);
  void end_handback(Session& session);
  Result<bool> tell_committed(const Session& session, const fb::BeginSnapshotT& begin);
  // -- restores (daemon_restore.cc) --------------------------------------------------------------
  void open_restore(Session& session, const fb::OpenRestoreT& message);
  void start_restore(Session& session, const fb::OpenRestoreT& message);
  void retry_waiting_restores();
  Result<RestoreRequest> resolve_restore(const Session& session, const fb::OpenRestoreT& message);
  Result<ViewPoint> resolve_view(const RunInfo& run, const fb::OpenRestoreT& message) const;
  Status may_locate(const Session& session, const RestorePlan& plan);
  void send_located(SessionId session, uint64_t id, Restore& restore, const Window& window);
  void located_read(Session& session, const fb::LocatedReadT& message);
  void restore_window(SessionId session, uint64_t id, const Result<Window>& window);
  void release_window(Session& session, const fb::ReleaseWindowT& message);
  void close_restore(Session& session, const fb::CloseRestoreT& message);
  RestoreContext restore_context();
  // -- questions (daemon_queries.cc, daemon_status.cc); health (daemon_health.cc) -----------------
  void query(Session& session, const fb::QueryT& message);
  QueryContext query_context(const Session& session);
  void query_verify(Session& session, const fb::QueryT& message);
  Result<HoldId> hold_verified(const Session& session, const VerifyTarget& target);
  QueryAnswer query_rebuild(const Session& session);
  QueryAnswer query_status(const Session& asker);
  void look_at_health();
  std::map<std::string, RunProgress::Waiting> snapshots_waiting() const;
  std::optional<std::set<std::string>> names_of_trained() const;
  // -- changes of history (daemon_wire_administration.cc) ----------------------------------------
  Administration::Needs administration_needs();
  void run_gone(const RunInfo& run);
  // -- views that readers hold (daemon_holds.cc) -------------------------------------------------
  Status may_hold(const RunInfo& run) const;
  Result<Hold> resolve_hold(const Session& session, const fb::HoldCommitT& message);
  void hold_commit(const Session& session, const fb::HoldCommitT& message);
  void renew_hold(const Session& session, const fb::RenewHoldT& message);
  void tell_ended(const std::vector<Hold>& ended, const std::string& reason);
  void end_overdue_holds();
  void end_holds_by_force(const Session& session, const std::function<bool(const Hold&)>& which);
  std::vector<HeldView> held_views(ckpt::RunId run) const;
  // -- space (daemon_gc.cc) ----------------------------------------------------------------------
  GcRound plan_gc_round();
  uint64_t oldest_reader() const;
  bool being_written(ckpt::SegmentId segment) const;
  void collect_garbage();
  void freed(const GcOutcome& outcome);
  void gc_round_over();
  void reader_gone();
  void query_gc(const Session& session, uint64_t request);
  void answer_gc();
  // -- background work (daemon_scrub.cc) ---------------------------------------------------------
  void start_scrub();
  bool may_read_back() const;
  bool disk_wanted() const;
  ScrubReport scrub_report() const;
  QueryAnswer query_scrub(const Session& session, const std::string& args);

  Disk& disk;
  Executor& executor;
  MemoryKeeper* const keeper;
  const Options options;

  Turn turn;
  RunGate gate;  // outlives everything that holds its tokens
  History history;
  Sessions sessions;
  std::map<SessionId, SessionWork> session_work;
  const Replies replies;
  std::unique_ptr<Staging> staging;
  IoShape io_shape;
  std::unique_ptr<Persist> persist;
  std::unique_ptr<SegmentReader> segments;
  std::unique_ptr<Comparer> comparer;
  std::unique_ptr<BaseReader> base_reader;
  Ingest ingest;
  Groups groups;

  RunRegistry registry{runs_needs()};
  Administration administration{administration_needs()};
  std::map<SnapshotKey, OpenSnapshotState> open_snapshots;
  std::map<ckpt::RunId, std::deque<WaitingBegin>> waiting_begins;
  std::map<ckpt::RunId, RunNewest> newest_by_run;    // of runs with an epoch
  std::map<ckpt::RunId, ckpt::Epoch> ended_epochs;   // the newest, of runs between two epochs
  std::map<ckpt::RunId, Groups::OpenEpoch> opening;  // waits for snapshots or a prune
  DecodeMeter decoded;
  std::map<std::string, std::vector<fb::UnitCodec>> unit_codecs;  // by run, if trainers set them
  UnitFlags unit_flags;
  uint64_t next_restore = 1;
  uint64_t next_verify = 1;
  std::map<uint64_t, Verify> verifies;

  Holds holds;
  std::map<ckpt::RunId, RunGate::Token> epochs_being_written;

  std::unique_ptr<Gc> gc;
  bool gc_wanted = true;    // leftovers of the last daemon
  bool gc_running = false;  // until the reclaim is recorded
  std::string gc_error;     // of the last round
  uint64_t next_reader = 1;
  DeadRecords dead_records;
  std::set<ckpt::SegmentId> dead_files;  // to be removed once nobody writes to them
  std::vector<GcAsker> gc_askers;
  std::vector<SpaceRange> unlisted;  // bytes in segments that no commit names or will name

  std::unique_ptr<Scrub> scrub;
  bool scrub_closed = false;

  // Work that callbacks leave for settle().
  std::set<ArenaId> arenas_ready;
  bool snapshot_ended = false;
  std::map<uint64_t, std::shared_ptr<void>> closing_jobs;  // restores and verifies that still read
  uint64_t next_closing_job = 1;

  std::optional<Time> serving_since;  // the first tick
  std::optional<Time> warm_next;      // earliest time: see warm_memory()
  bool rejoin_deadline_over = false;
  bool draining = false;
  bool closed_cleanly = false;
  Time drain_deadline{};
  Counters counters;
  HealthWatch health_watch;
};

}  // namespace ckptd
