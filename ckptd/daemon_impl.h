// Shared by the sources daemon_*.cc, and private to them:
//
//   daemon, _dispatch           public interface, poll and tick, drain; dispatch of messages
//   _open                       recovery (recovery/), then the stages
//   _sessions                   greeting, registration, loss of a session
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

#include "ckptd/background/scrub_control.h"
#include "ckptd/background/space.h"
#include "ckptd/daemon.h"
#include "ckptd/daemon_state.h"
#include "ckptd/epochs/epochs.h"
#include "ckptd/health/health_watch.h"
#include "ckptd/history/history.h"
#include "ckptd/limits.h"
#include "ckptd/persist/persist.h"
#include "ckptd/query/query.h"
#include "ckptd/readers/readers.h"
#include "ckptd/recovery/recovery.h"
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
  void on_record(const fb::RecordT& record);
  void take_recovered(const Recovered& recovered);
  void open_persist(const Recovered& recovered);
  void open_staging();
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
  // -- what modules need from each other (daemon_wire_*.cc) --------------------------------------
  Snapshots::Needs snapshots_needs();
  Readers::Needs readers_needs();
  std::optional<EarlierSnapshots> earlier_snapshots(SessionId session) const;
  Epochs::Needs epochs_needs();
  Space::Needs space_needs();
  ScrubControl::Needs scrub_needs();
  bool disk_wanted() const;
  // -- questions (daemon_queries.cc, daemon_status.cc); health (daemon_wire_health.cc) ------------
  void query(Session& session, const fb::QueryT& message);
  QueryContext query_context(const Session& session);
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
  bool disk_wanted() const;

  Disk& disk;
  Executor& executor;
  MemoryKeeper* const keeper;
  const Options options;

  Turn turn;
  History history;
  Sessions sessions;
  const Replies replies;
  Readers readers;
  std::unique_ptr<Staging> staging;
  IoShape io_shape;
  std::unique_ptr<Persist> persist;
  std::unique_ptr<SegmentReader> segments;
  std::unique_ptr<Snapshots> snapshots;

  std::map<std::string, CreatingRun> creating_runs;
  ckpt::RunId next_run = 1;

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
