// Shared by the sources daemon_*.cc, and private to them:
//
//   daemon, _dispatch           public interface, poll and tick, drain; dispatch of messages
//   _open                       recovery (recovery/), then the stages
//   _sessions                   greeting, loss of a session
//   _queries                    queries
//   _wire_FOLDER                what the module in that folder needs from the others
//
// All runs on the loop thread: callbacks in poll(), follow-up work in settle(), no recursion.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "ckptd/administration/administration.h"
#include "ckptd/background/scrub_control.h"
#include "ckptd/background/space.h"
#include "ckptd/daemon.h"
#include "ckptd/epochs/epochs.h"
#include "ckptd/health/health_watch.h"
#include "ckptd/history/history.h"
#include "ckptd/history/run_gate.h"
#include "ckptd/limits.h"
#include "ckptd/persist/persist.h"
#include "ckptd/query/query.h"
#include "ckptd/readers/readers.h"
#include "ckptd/recovery/lost_end.h"
#include "ckptd/recovery/marked_commits.h"
#include "ckptd/recovery/recovery.h"
#include "ckptd/reports/daemon_counters.h"
#include "ckptd/reports/metrics.h"
#include "ckptd/reports/status.h"
#include "ckptd/runs/run_registry.h"
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
  void restore_kept_memory();
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
  RunRegistry::Needs runs_needs();  // daemon_wire_runs.cc
  void disconnected(SessionId session, const std::string& reason);
  // -- what modules need from each other (daemon_wire_*.cc) --------------------------------------
  Snapshots::Needs snapshots_needs();
  Readers::Needs readers_needs();
  std::optional<EarlierSnapshots> earlier_snapshots(SessionId session) const;
  Epochs::Needs epochs_needs();
  Space::Needs space_needs();
  ScrubControl::Needs scrub_needs();
  bool disk_wanted() const;
  // -- questions (daemon_queries.cc); health (daemon_wire_health.cc) ------------------------------
  void query(Session& session, const fb::QueryT& message);
  QueryContext query_context(const Session& session);
  QueryAnswer query_rebuild(const Session& session);
  StatusViews status_views() const;  // daemon_wire_reports.cc
  MetricViews metric_views() const;
  void update_health();
  std::optional<std::set<std::string>> names_of_trained() const;
  // -- changes of history (daemon_wire_administration.cc) ----------------------------------------
  Administration::Needs administration_needs();
  void run_gone(const RunInfo& run);

  Disk& disk;
  Executor& executor;
  MemoryKeeper* const keeper;
  const Options options;

  Turn turn;
  RunGate gate;  // outlives everything that holds its tokens
  History history;
  Sessions sessions;
  const Replies replies;
  Readers readers;
  std::unique_ptr<Staging> staging;
  IoShape io_shape;
  std::unique_ptr<Persist> persist;
  std::unique_ptr<SegmentReader> segments;
  std::unique_ptr<Snapshots> snapshots;

  RunRegistry registry;
  Administration administration;

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
  DaemonCounters counters;
  HealthWatch health_watch;
  MarkedCommits marked_commits;
};

}  // namespace ckptd
