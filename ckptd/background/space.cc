#include "ckptd/background/space.h"

#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "ckptd/limits.h"
#include "ckptd/observe/log_event.h"
#include "ckptd/sessions/access.h"
#include "formats/base/json_dump.h"

namespace ckptd {

namespace fb = ckpt::fb;
using ckpt::ErrorCode;
using ckpt::make_error;

namespace {

// Space of aborted snapshots. Recovery reclaims what is left.
constexpr ckpt::RunId kNoRun = 0;

bool makes_dead(fb::RecordBody type) {
  return type == fb::RecordBody::Deleted || type == fb::RecordBody::RunRemoved;
}

}  // namespace

void Space::open(Disk& disk, SegmentReader& segments) {
  gc_ = std::make_unique<Gc>(disk, needs_.executor, segments);
}

void Space::on_record(const fb::RecordT& record) {
  if (!makes_dead(record.body.type)) return;
  wanted_ = true;
  dead_records_.rescan();
}

Space::Round Space::plan_round() {
  const Catalog& catalog = needs_.history.catalog();
  auto taken = dead_records_.take(catalog, needs_.oldest_reader(), limits::kGcTasksPerRoundMax);
  Round round{.tasks = std::move(taken.tasks), .removable = {}, .more = dead_records_.more()};
  std::set<ckpt::SegmentId>& candidates = taken.candidates;
  candidates.insert(dead_files_.begin(), dead_files_.end());
  for (const SpaceRange& range : unlisted_) candidates.insert(range.segment);
  for (const ckpt::SegmentId segment : candidates) {
    if (dead_records_.is_read(segment)) continue;
    const auto live = catalog.live_extents(segment);
    if (!live.ok() || *live > 0) continue;
    if (needs_.being_written(segment)) {
      dead_files_.insert(segment);
    } else {
      dead_files_.erase(segment);
      round.removable.insert(segment);
    }
  }
  return round;
}

// Once the journal is closed, its last commits are unknown: a file without listed extents may hold
// them. The next startup decides.
void Space::collect() {
  const History& history = needs_.history;
  if (!wanted_ || running_ || needs_.is_draining() || !history.journal().health().ok()) return;
  if (!history.current()) return;               // retried when it is current
  if (!needs_.stop_background_reads()) return;  // retried once these reads are over
  // All dead records are seen before a round is planned; a backlog takes several loop turns.
  const bool all_seen =
      dead_records_.see(history.catalog(), needs_.next_reader(), limits::kGcRecordsPerTurnMax);
  if (!history.catalog().health().ok()) return dead_records_.forget();  // retried after a repair
  if (!all_seen) return needs_.executor.run({}, [] {});  // its completion wakes the loop up
  wanted_ = false;
  Round round = plan_round();
  if (!history.catalog().health().ok()) {
    wanted_ = true;
    dead_records_.forget();
    return;
  }
  if (!unlisted_.empty()) {
    std::sort(unlisted_.begin(), unlisted_.end());
    round.tasks.push_back({kNoRun, {.sequence = 0, .ranges = std::exchange(unlisted_, {})}});
  }
  if (round.tasks.empty() && round.removable.empty()) return;
  running_ = true;
  wanted_ = round.more;
  gc_->start(std::move(round.tasks), round.removable,
             [this](const GcOutcome& outcome) { freed(outcome); });
}

void Space::freed(const GcOutcome& outcome) {
  counters_.freed_bytes += outcome.bytes;
  counters_.segments_removed += outcome.segments_removed;
  dead_files_.insert(outcome.still_read.begin(), outcome.still_read.end());
  error_.clear();
  if (outcome.failed) {
    ++counters_.errors;
    error_ = outcome.failed->message;
    dead_records_.forget();
    wanted_ = false;  // the next prune, `gc` or startup asks again
    spdlog::error("space was not given back: {}", error_);
  }
  if (outcome.bytes > 0 || outcome.segments_removed > 0) {
    log_event(spdlog::level::info, "space_freed",
              {{"bytes", outcome.bytes}, {"segments", outcome.segments_removed}},
              "{} bytes were given back to the disk, {} segments removed", outcome.bytes,
              outcome.segments_removed);
  }
  record_freed(outcome);
}

void Space::record_freed(const GcOutcome& outcome) {
  std::map<ckpt::RunId, fb::SpaceFreedT> by_run;
  for (const auto& [run, sequence] : outcome.freed) {
    if (run == kNoRun) continue;  // no record made it dead, so none records its reclaim
    by_run[run].records.push_back(sequence);
    dead_records_.freed(sequence);
  }
  std::vector<fb::RecordT> records;
  records.reserve(by_run.size());
  for (auto& [run, body] : by_run) {
    body.run = run;
    body.time_ns = needs_.turn.wall_clock_ns();
    records.push_back(make_record(std::move(body)));
  }
  if (records.empty()) return round_over();
  needs_.history.record(std::move(records), [this](const Status& status) {
    if (!status.ok()) {
      spdlog::warn("freed space is not on record: {}", status.error().message);
      dead_records_.forget();
    }
    round_over();
  });
}

void Space::round_over() {
  running_ = false;
  needs_.turn.defer([this] { collect(); });  // answer_askers() follows at the end of the turn
}

void Space::query(const Session& session, uint64_t request) {
  if (!may_use(session, ::geteuid())) {
    return needs_.replies.answer(
        session.id, request,
        error_answer(make_error(ErrorCode::kPermissionDenied,
                                "gc: only for the daemon's own user and root")));
  }
  wanted_ = true;
  askers_.push_back({session.id, request, counters_.freed_bytes, counters_.segments_removed});
}

void Space::answer_askers() {
  if (running_ || askers_.empty()) return;
  const Status journal = needs_.history.journal().health();
  const Status health = journal.ok() ? needs_.history.catalog().health() : journal;
  if (wanted_ && health.ok() && !needs_.is_draining()) return;
  for (const Asker& asker : std::exchange(askers_, {})) {
    needs_.replies.answer(asker.session, asker.request, answer_to(asker, health));
  }
}

QueryAnswer Space::answer_to(const Asker& asker, const Status& health) const {
  if (!health.ok() || needs_.is_draining()) {
    return error_answer(
        make_error(ErrorCode::kUnavailable, "gc: {}",
                   needs_.is_draining() ? "the daemon is shutting down" : health.error().message));
  }
  nlohmann::ordered_json document = {
      {"freed_bytes", counters_.freed_bytes - asker.freed_bytes},
      {"segments_removed", counters_.segments_removed - asker.segments_removed},
      {"deletions_waiting", dead_records_.waiting()}};
  if (dead_records_.waiting() > 0)
    document["waiting_for"] = "restores or verifies that began before them";
  if (!error_.empty()) document["error"] = error_;
  return {.exit_code = error_.empty() ? 0 : 1, .json = ckpt::base::dump_json(document)};
}

}  // namespace ckptd
