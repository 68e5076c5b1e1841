// Shared by the sources daemon_*.cc, and private to them:
//
//   daemon, _dispatch           public interface, poll and tick, drain; dispatch of messages
//   _open, _salvage             recovery; a damaged journal
//   _sessions, _epochs, _handback  sessions and groups; return of clients after a restart
//   _wire_*                     what each module needs of the others
//   _restore, _holds, _gc, _scrub  restores, holds; dead space; background work
//   _queries, _status, _metrics, _health, _administration  queries, reports, changes of history
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

#include "ckptd/catalog/salvage.h"
#include "ckptd/daemon.h"
#include "ckptd/daemon_health.h"
#include "ckptd/daemon_state.h"
#include "ckptd/gc/dead_records.h"
#include "ckptd/gc/gc.h"
#include "ckptd/group/group.h"
#include "ckptd/history/history.h"
#include "ckptd/holds/holds.h"
#include "ckptd/limits.h"
#include "ckptd/persist/persist.h"
#include "ckptd/query/query.h"
#include "ckptd/restore/restore.h"
#include "ckptd/scrub/scrub.h"
#include "ckptd/sessions/access.h"
#include "ckptd/sessions/replies.h"
#include "ckptd/sessions/session.h"
#include "ckptd/snapshots/snapshots.h"
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
  void register_units(Session& session, const fb::RegisterUnitsT& message, bool may_replace);
  void create_run(Session& session, const fb::RegisterUnitsT& message,
                  std::vector<ckpt::UnitSpec> units, const RunInfo* replaced);
  void run_created(const std::string& name, ckpt::RunId run, const Status& status);
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
  Snapshots::Needs snapshots_needs();  // daemon_wire_snapshots.cc
  // -- coming back (daemon_handback.cc) ----------------------------------------------------------
  void rejoin(Session& session, const fb::RejoinEpochT& message);
  void end_rejoins();
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
  std::optional<std::set<std::string>> names_of_trained() const;
  // -- changes of history (daemon_administration.cc) ---------------------------------------------
  static bool is_administration(std::string_view verb);
  void administer(const Session& session, const fb::QueryT& message);
  void next_administration();
  void administered(const Administration& task, const QueryAnswer& answer_to_it);
  void write_administration(const Administration& task, std::vector<fb::RecordT> records,
                            std::function<QueryAnswer()> then);
  void change_tag(const Session& session, const Administration& task);
  void change_pin(const Session& session, const Administration& task);
  QueryAnswer rules_answer(const QueryContext& context, const RunInfo& run);
  void change_rules(const Session& session, const Administration& task);
  void change_grant(const Session& session, const Administration& task);
  void prune(const Session& session, const Administration& task);
  Status may_prune(const RunInfo& run) const;
  Result<PrunePlan> make_prune_plan(const Session& session, const PruneArgs& args) const;
  std::vector<ViewPoint> points_being_taken(ckpt::RunId run) const;
  void delete_planned(const Administration& task, const RunInfo& run, const PrunePlan& plan,
                      const PlanPage& page, std::vector<fb::RecordT> records);
  Status may_remove(const RunInfo& run) const;
  void remove(const Session& session, const Administration& task);
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
  History history;
  Sessions sessions;
  std::map<SessionId, SessionWork> session_work;
  const Replies replies;
  std::unique_ptr<Staging> staging;
  IoShape io_shape;
  std::unique_ptr<Persist> persist;
  std::unique_ptr<SegmentReader> segments;
  std::unique_ptr<Snapshots> snapshots;
  Groups groups;

  std::map<std::string, CreatingRun> creating_runs;
  ckpt::RunId next_run = 1;
  std::map<ckpt::RunId, Groups::OpenEpoch> opening;  // waits for snapshots or a prune
  DecodeMeter decoded;
  uint64_t next_restore = 1;
  uint64_t next_verify = 1;
  std::map<uint64_t, Verify> verifies;

  Holds holds;
  std::deque<Administration> administrations;  // wait for the current one
  bool administering = false;
  std::optional<ckpt::RunId> pruning;          // its deletions are being written to the journal
  std::optional<ckpt::RunId> removing;         // likewise for all of it: no registration
  std::set<ckpt::RunId> epochs_being_written;  // likewise

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
