// Shared by the sources daemon_*.cc, and private to them:
//
//   daemon, _dispatch           public interface, poll and tick, drain; dispatch of messages
//   _open                       recovery (recovery/), then the stages
//   _sessions, _handback        sessions; return of clients after a restart
//   _begin, _snapshots, _alarms, _codec, _delta, _same  a snapshot from its begin to its commit
//   _wire_*                     what the modules need from each other
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

#include "ckptd/alarms/judge.h"
#include "ckptd/background/scrub_control.h"
#include "ckptd/background/space.h"
#include "ckptd/daemon.h"
#include "ckptd/daemon_state.h"
#include "ckptd/epochs/epochs.h"
#include "ckptd/health/health_watch.h"
#include "ckptd/history/history.h"
#include "ckptd/ingest/ingest.h"
#include "ckptd/limits.h"
#include "ckptd/persist/persist.h"
#include "ckptd/query/query.h"
#include "ckptd/readers/readers.h"
#include "ckptd/recovery/recovery.h"
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
  void on_record(const fb::RecordT& record);
  void take_recovered(const Recovered& recovered);
  void open_persist(const Recovered& recovered);
  void open_staging();
  void open_readers_back();
  void take_back_memory();
  void settle();
  void step_drain();
  void close();
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
  void reopen(Session& session, const fb::ReopenSnapshotT& message);
  void end_handback(Session& session);
  Result<bool> tell_committed(const Session& session, const fb::BeginSnapshotT& begin);
  // -- what modules need from each other (daemon_wire_*.cc) --------------------------------------
  Readers::Needs readers_needs();
  std::optional<EarlierSnapshots> earlier_snapshots(SessionId session) const;
  Epochs::Needs epochs_needs();
  Space::Needs space_needs();
  ScrubControl::Needs scrub_needs();
  // -- questions (daemon_queries.cc, daemon_status.cc); health (daemon_wire_health.cc) ------------
  void query(Session& session, const fb::QueryT& message);
  QueryContext query_context(const Session& session);
  QueryAnswer query_rebuild(const Session& session);
  QueryAnswer query_status(const Session& asker);
  void look_at_health();
  std::map<std::string, RunProgress::Waiting> snapshots_waiting() const;
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
  // -- background work (daemon_wire_background.cc) -----------------------------------------------
  bool being_written(ckpt::SegmentId segment) const;
  bool disk_wanted() const;

  Disk& disk;
  Executor& executor;
  MemoryKeeper* const keeper;
  const Options options;

  Turn turn;
  History history;
  Sessions sessions;
  std::map<SessionId, SessionWork> session_work;
  const Replies replies;
  Readers readers;
  std::unique_ptr<Staging> staging;
  IoShape io_shape;
  std::unique_ptr<Persist> persist;
  std::unique_ptr<SegmentReader> segments;
  std::unique_ptr<Comparer> comparer;
  std::unique_ptr<BaseReader> base_reader;
  Ingest ingest;

  std::map<std::string, CreatingRun> creating_runs;
  ckpt::RunId next_run = 1;
  std::map<SnapshotKey, OpenSnapshotState> open_snapshots;
  std::map<ckpt::RunId, std::deque<WaitingBegin>> waiting_begins;
  std::map<ckpt::RunId, RunNewest> newest_by_run;   // of runs with an epoch
  std::map<ckpt::RunId, ckpt::Epoch> ended_epochs;  // the newest, of runs between two epochs
  std::map<std::string, std::vector<fb::UnitCodec>> unit_codecs;  // by run, if trainers set them
  UnitFlags unit_flags;

  std::deque<Administration> administrations;  // wait for the current one
  bool administering = false;
  std::optional<ckpt::RunId> pruning;          // its deletions are being written to the journal
  std::optional<ckpt::RunId> removing;         // likewise for all of it: no registration
  std::set<ckpt::RunId> epochs_being_written;  // likewise

  Epochs epochs;
  Space space;
  ScrubControl scrub;

  // Work that callbacks leave for settle().
  std::set<ArenaId> arenas_ready;
  bool snapshot_ended = false;

  std::optional<Time> warm_next;  // earliest time: see warm_memory()
  bool draining = false;
  bool closed_cleanly = false;
  Time drain_deadline{};
  Counters counters;
  HealthWatch health_watch;
};

}  // namespace ckptd
