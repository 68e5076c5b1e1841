// Returns dead space to the disk. Extents of failed snapshots: at once, because no commit names
// them. Extents of deletions: after the tombstone is durable and in the catalog, and after every
// restore and verify that may still read them has ended. Then the reclaim is recorded; until then
// the next startup, or the next round, repeats it.
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "ckptd/daemon_impl.h"
#include "ckptd/observe/log_event.h"
#include "formats/base/json_dump.h"

namespace ckptd {

// Space of aborted snapshots. Recovery reclaims what is left.
constexpr ckpt::RunId kNoRun = 0;

// Jobs are numbered in the order of their start.
uint64_t Daemon::Impl::oldest_reader() const {
  uint64_t oldest = next_reader;
  for (const auto& [session, work] : session_work) {
    for (const auto& [restore_id, restore] : work.restores) {
      oldest = std::min(oldest, restore.reader);
    }
  }
  for (const auto& [id, verify] : verifies) oldest = std::min(oldest, verify.reader);
  return oldest;
}

// Plans a round: space that can be reclaimed now.
GcRound Daemon::Impl::plan_gc_round() {
  auto taken = dead_records.take(history.catalog(), oldest_reader(), limits::kGcTasksPerRoundMax);
  GcRound round{.tasks = std::move(taken.tasks), .removable = {}, .more = dead_records.more()};
  std::set<ckpt::SegmentId>& candidates = taken.candidates;
  candidates.insert(dead_files.begin(), dead_files.end());
  for (const SpaceRange& range : unlisted) candidates.insert(range.segment);
  for (const ckpt::SegmentId segment : candidates) {
    if (dead_records.is_read(segment)) continue;
    const auto live = history.catalog().live_extents(segment);
    if (!live.ok() || *live > 0) continue;
    if (snapshots->being_written(segment)) {
      dead_files.insert(segment);
    } else {
      dead_files.erase(segment);
      round.removable.insert(segment);
    }
  }
  return round;
}

// Once the journal is closed, its last commits are unknown: a file without listed extents may hold
// them. The next startup decides.
void Daemon::Impl::collect_garbage() {
  if (!gc_wanted || gc_running || draining || !history.journal().health().ok()) return;
  if (!history.current()) return;    // retried when it is current
  if (!scrub->step_aside()) return;  // retried by settle(), once scrub's reads are over
  // All dead records are seen before a round is planned; a backlog takes several loop turns.
  const bool all_seen =
      dead_records.see(history.catalog(), next_reader, limits::kGcRecordsPerTurnMax);
  if (!history.catalog().health().ok()) return dead_records.forget();  // retried after a repair
  if (!all_seen) return executor.run({}, [] {});  // its completion wakes the loop up
  gc_wanted = false;
  GcRound round = plan_gc_round();
  if (!history.catalog().health().ok()) {
    gc_wanted = true;
    dead_records.forget();
    return;
  }
  if (!unlisted.empty()) {
    std::sort(unlisted.begin(), unlisted.end());
    round.tasks.push_back({kNoRun, {.sequence = 0, .ranges = std::exchange(unlisted, {})}});
  }
  if (round.tasks.empty() && round.removable.empty()) return;
  gc_running = true;
  gc_wanted = round.more;
  gc->start(std::move(round.tasks), round.removable,
            [this](const GcOutcome& outcome) { freed(outcome); });
}

void Daemon::Impl::freed(const GcOutcome& outcome) {
  counters.freed_bytes += outcome.bytes;
  counters.segments_removed += outcome.segments_removed;
  dead_files.insert(outcome.still_read.begin(), outcome.still_read.end());
  gc_error.clear();
  if (outcome.failed) {
    ++counters.gc_errors;
    gc_error = outcome.failed->message;
    dead_records.forget();
    gc_wanted = false;  // the next prune, `gc` or startup asks again
    spdlog::error("space was not given back: {}", gc_error);
  }
  std::map<ckpt::RunId, fb::SpaceFreedT> by_run;
  for (const auto& [run, sequence] : outcome.freed) {
    if (run == kNoRun) continue;  // no record made it dead, so none records its reclaim
    by_run[run].records.push_back(sequence);
    dead_records.freed(sequence);
  }
  std::vector<fb::RecordT> records;
  records.reserve(by_run.size());
  for (auto& [run, body] : by_run) {
    body.run = run;
    body.time_ns = turn.wall_clock_ns();
    records.push_back(make_record(std::move(body)));
  }
  if (outcome.bytes > 0 || outcome.segments_removed > 0) {
    log_event(spdlog::level::info, "space_freed",
              {{"bytes", outcome.bytes}, {"segments", outcome.segments_removed}},
              "{} bytes were given back to the disk, {} segments removed", outcome.bytes,
              outcome.segments_removed);
  }
  if (records.empty()) return gc_round_over();
  history.record(std::move(records), [this](const Status& status) {
    if (!status.ok()) {
      spdlog::warn("freed space is not on record: {}", status.error().message);
      dead_records.forget();
    }
    gc_round_over();
  });
}

void Daemon::Impl::gc_round_over() {
  gc_running = false;
  turn.defer([this] { collect_garbage(); });  // runs in settle(), which also answers
}

// A restore or verify has ended: its waiting records may be ready.
void Daemon::Impl::reader_gone() {
  if (dead_records.waiting() > 0) gc_wanted = true;
}

void Daemon::Impl::query_gc(const Session& session, uint64_t request) {
  if (!may_use(session, ::geteuid())) {
    return replies.answer(session.id, request,
                          error_answer(make_error(ErrorCode::kPermissionDenied,
                                                  "gc: only for the daemon's own user and root")));
  }
  gc_wanted = true;
  gc_askers.push_back({session.id, request, counters.freed_bytes, counters.segments_removed});
}

// Answers gc requests when nothing is left to do, or nothing can be done now.
void Daemon::Impl::answer_gc() {
  if (gc_running || gc_askers.empty()) return;
  const Status health =
      history.journal().health().ok() ? history.catalog().health() : history.journal().health();
  if (gc_wanted && health.ok() && !draining) return;
  for (const GcAsker& asker : std::exchange(gc_askers, {})) {
    if (!health.ok() || draining) {
      const Error error =
          make_error(ErrorCode::kUnavailable, "gc: {}",
                     draining ? "the daemon is shutting down" : health.error().message);
      replies.answer(asker.session, asker.request, error_answer(error));
      continue;
    }
    nlohmann::ordered_json document = {
        {"freed_bytes", counters.freed_bytes - asker.freed_bytes},
        {"segments_removed", counters.segments_removed - asker.segments_removed},
        {"deletions_waiting", dead_records.waiting()}};
    if (dead_records.waiting() > 0)
      document["waiting_for"] = "restores or verifies that began before them";
    if (!gc_error.empty()) document["error"] = gc_error;
    replies.answer(
        asker.session, asker.request,
        {.exit_code = gc_error.empty() ? 0 : 1, .json = ckpt::base::dump_json(document)});
  }
}

}  // namespace ckptd
