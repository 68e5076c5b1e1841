#include "ckptd/recovery/commit_checker.h"

#include <spdlog/spdlog.h>

#include <utility>

#include "ckptd/io/store_paths.h"
#include "ckptd/limits.h"
#include "ckptd/observe/log_event.h"
#include "ckptd/safeguards.h"
#include "formats/selector.h"

namespace ckptd {

namespace fb = ckpt::fb;
using ckpt::ErrorCode;
using ckpt::SnapshotKey;

SegmentReader& CommitChecker::segments() {
  if (!segments_) segments_ = std::make_unique<SegmentReader>(disk_, history_.store_id());
  return *segments_;
}

std::unique_ptr<SegmentReader> CommitChecker::take_segments() {
  segments();
  return std::move(segments_);
}

// Counts a damaged commit. A missing segment file gets a line of its own, the first time.
bool CommitChecker::has_a_line(const std::string& reason) {
  const std::string missing(missing_file_of(reason));
  const uint64_t commits = ++damaged_[missing];
  if (commits == 1 && !missing.empty()) {
    spdlog::error(
        "{} is missing, and commits need it: put it back and restart ckptd, or restores take older "
        "versions",
        missing);
  }
  return commits <= limits::kDamageLinesMax;
}

void CommitChecker::log_left_out() const {
  for (const auto& [missing, commits] : damaged_) {
    if (commits <= limits::kDamageLinesMax) continue;
    spdlog::error("{} more commits are damaged{}", commits - limits::kDamageLinesMax,
                  missing.empty() ? "" : ": " + missing + " is missing");
  }
}

Result<RecoveryCheck> CommitChecker::check(const Catalog& index, const SnapshotKey& key,
                                           ExtentPart part, bool log_at_debug) {
  const auto level = log_at_debug ? spdlog::level::debug : spdlog::level::err;
  const auto info = index.commit(key.run, key.lineage, key.step);
  CKPT_TRY(index.health());
  if (!info || info->damaged || info->deleted || info->snapshot != key) return RecoveryCheck();
  const auto commit = index.record(key.run, key.lineage, key.step);
  CKPT_TRY(index.health());
  if (!commit) return RecoveryCheck();
  CKPT_ASSIGN(const auto units, index.units(key.run));
  const Status held = check_commit_headers(segments(), *commit, *units, part);
  if (held.ok()) return RecoveryCheck();
  const RunInfo run = index.run(key.run).value();
  const std::string name = ckpt::commit_name(run.name, key.lineage, key.step);
  const bool read =
      held.error().code == ErrorCode::kCorrupt || held.error().code == ErrorCode::kNotFound;
  if (!read && !left_out(Safeguard::kUnreadStays)) {
    // A later read may succeed. A restore falls back if not.
    spdlog::log(level, "{}: could not be checked: {}", name, held.error().message);
    return RecoveryCheck{.damaged = {}, .unread = true, .reason = held.error().message};
  }
  const bool shown = log_at_debug || has_a_line(held.error().message);
  log_event(shown ? level : spdlog::level::debug, "commit_damaged",
            {{"run", run.name},
             {"lineage", key.lineage},
             {"step", key.step},
             {"reason", held.error().message}},
            "{}: damaged: {}", name, held.error().message);
  fb::CommitDamagedT damaged;
  damaged.run = key.run;
  damaged.lineage = key.lineage;
  damaged.step = key.step;
  damaged.reason = held.error().message;
  damaged.time_ns = turn_.wall_clock_ns();
  return RecoveryCheck{
      .damaged = make_record(std::move(damaged)), .unread = false, .reason = held.error().message};
}

Result<std::optional<fb::RecordT>> CommitChecker::lift_mark(const Catalog& index,
                                                            const MarkedCommit& marked) {
  const auto& [run, point] = marked;
  const auto info = index.commit(run, point.lineage, point.step);
  CKPT_TRY(index.health());
  if (!info || !info->damaged || info->deleted) return std::optional<fb::RecordT>();
  const auto commit = index.record(run, point.lineage, point.step);
  CKPT_TRY(index.health());
  if (!commit) return std::optional<fb::RecordT>();
  CKPT_ASSIGN(const auto units, index.units(run));
  if (!check_commit_headers(segments(), *commit, *units).ok()) return std::optional<fb::RecordT>();
  fb::CommitDamagedT lifted;
  lifted.run = run;
  lifted.lineage = point.lineage;
  lifted.step = point.step;
  lifted.time_ns = turn_.wall_clock_ns();
  return std::optional(make_record(std::move(lifted)));
}

}  // namespace ckptd
