#include "ckptd/health/health_watch.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "ckptd/io/disk.h"
#include "ckptd/io/store_paths.h"
#include "ckptd/limits.h"
#include "ckptd/observe/log_event.h"
#include "formats/base/counted.h"
#include "formats/base/parse.h"

namespace ckptd {

using ckpt::base::counted;
using ckpt::base::format_age;
using ckpt::base::format_size;

namespace {

// A lost rank costs one failed snapshot, which is no condition.
constexpr uint64_t kFailuresToReport = 2;

Fault disk_full_fault(const DiskShortage& shortage) {
  return {.cause = disk_full_cause(shortage),
          .remedy = disk_full_remedy(shortage.room),
          .kind = shortage.of_journal ? "journal" : "snapshots"};
}

}  // namespace

void HealthWatch::report(Condition condition, std::optional<Fault> fault, uint64_t now_ns) {
  const std::string_view name = condition_name(condition);
  const Health::Held* held = health_.held(condition);
  const uint64_t since_ns = held == nullptr ? now_ns : held->since_ns;
  switch (health_.set(condition, std::move(fault), now_ns)) {
    case Health::Change::kNone:
      return;
    case Health::Change::kBegan:
    case Health::Change::kCauseChanged: {
      const Fault& now = health_.held(condition)->fault;
      log_event(spdlog::level::warn, "condition_began",
                {{"condition", name}, {"reason", now.cause}, {"remedy", now.remedy}}, "{}: {}; {}",
                name, now.cause, now.remedy);
      return;
    }
    case Health::Change::kEnded: {
      const auto held_for = std::chrono::nanoseconds(now_ns > since_ns ? now_ns - since_ns : 0);
      log_event(spdlog::level::info, "condition_ended",
                {{"condition", name}, {"seconds", std::chrono::duration<double>(held_for).count()}},
                "{} is over after {}", name, format_age(held_for));
      return;
    }
  }
}

namespace {

// True if several snapshots of the run are sealed, and the first has waited for long. A run that
// saves at every step always has the next one sealed: that alone is no sign.
bool is_behind(const RunProgress::Waiting& run) {
  return run.count > 1 && std::chrono::nanoseconds(run.longest_ns) >= limits::kDiskSlowAfter;
}

std::string disk_work(const HealthWatch::Inputs& inputs) {
  if (inputs.bytes_to_write == 0) return "nothing is left to write, and the disk is still busy";
  std::string text = fmt::format("the disk has {} to write", format_size(inputs.bytes_to_write));
  const auto rate = static_cast<uint64_t>(inputs.disk_bytes_per_second);
  return rate == 0 ? text : fmt::format("{} and takes {}/s", text, format_size(rate));
}

}  // namespace

// The disk is slow if it was busy for a while and, for all that time, a trainer waited for slabs or
// for its turn, or sealed snapshots of a run waited.
std::optional<Fault> HealthWatch::slow_disk(const Inputs& inputs) {
  const bool behind =
      std::ranges::any_of(inputs.waiting, [](const auto& run) { return is_behind(run.second); });
  if (!(inputs.trainers_wait || behind) || !inputs.disk_busy) {
    waits_since_.reset();
    return std::nullopt;
  }
  if (!waits_since_) waits_since_ = inputs.now;
  const auto waited = inputs.now - *waits_since_;
  if (waited < limits::kDiskSlowAfter) return std::nullopt;
  RunProgress::Waiting all;
  for (const auto& [run, waiting] : inputs.waiting) {
    all.count += waiting.count;
    all.longest_ns = std::max(all.longest_ns, waiting.longest_ns);
  }
  std::string waiters = inputs.trainers_wait ? "trainers wait for the disk" : "";
  if (all.count > 0) {
    waiters += fmt::format("{}{} for the disk, the oldest for {}", waiters.empty() ? "" : "; ",
                           counted(all.count, "sealed snapshot waits", "sealed snapshots wait"),
                           format_age(std::chrono::nanoseconds(all.longest_ns)));
  }
  return Fault{
      .cause = fmt::format("{}; {}", waiters, disk_work(inputs)),
      .remedy = "checkpoint less often, take a faster disk, or let the arena hold more snapshots",
      .kind = "backpressure"};
}

namespace {

// "step 5", or "steps 5 to 9": a failed step may have been retried.
std::string steps_of(const RunProgress::Failing& failing) {
  if (failing.first_step == failing.last_step) return fmt::format("step {}", failing.last_step);
  return fmt::format("steps {} to {}", failing.first_step, failing.last_step);
}

// `disk_full`: that condition holds, and describes the same cause in full.
std::string failing_cause(const std::string& name, const RunProgress::Run& run, bool disk_full) {
  const RunProgress::Failing& of = *run.failing;
  const std::string which =
      of.count == 1
          ? fmt::format("its last snapshot, of step {}, failed", of.last_step)
          : fmt::format("{} in a row failed, {}", counted(of.count, "snapshot"), steps_of(of));
  return fmt::format(
      "run {}: {}; {}: {}", name, which,
      run.durable ? fmt::format("the last durable step is {}", run.durable->step)
                  : "no step is durable",
      disk_full && of.of_full_disk() ? "the disk was full (see disk_full)" : of.cause);
}

}  // namespace

// A run without a trainer has no next snapshot that could succeed: its failures are reported until
// it is trained again or removed.
std::optional<Fault> HealthWatch::failing_snapshots() const {
  const RunProgress::Run* worst = nullptr;
  std::string worst_run;
  size_t failing = 0;
  for (const auto& [name, run] : progress_.runs()) {
    if (!run.failing || (run.trained && run.failing->count < kFailuresToReport)) continue;
    ++failing;
    if (worst != nullptr && worst->failing->since_ns <= run.failing->since_ns) continue;
    worst = &run;
    worst_run = name;
  }
  if (worst == nullptr) return std::nullopt;
  const bool disk_full = health_.held(Condition::kDiskFull) != nullptr;
  std::string cause = failing_cause(worst_run, *worst, disk_full);
  if (failing > 1) cause += "; so it is with " + counted(failing - 1, "more run");
  return Fault{.cause = std::move(cause),
               .remedy = worst->trained
                             ? "remove the cause; the trainer saves again at its next checkpoint"
                             : "nobody trains the run now: remove the cause and resume it, or "
                               "remove the run (ckptctl rm) if it is not needed",
               .kind = worst_run + ": " + worst->failing->kind};
}

// A failed write counts once, even if it fails several snapshots, which failing_snapshots()
// reports. Without a trainer no next save can end the condition: it ends after a while.
std::optional<Fault> HealthWatch::failing_writes(Time now) {
  FailedWrites& failed = failed_writes_;
  if (std::exchange(failed.is_new, false)) {
    ++failed.count;
    failed.seen_at = now;
  }
  if (failed.count < kFailuresToReport) return std::nullopt;
  const bool awaited = std::ranges::any_of(progress_.runs(), [](const auto& run) {
    return run.second.trained && run.second.failing && run.second.failing->in_store;
  });
  if (!awaited && now - failed.seen_at >= limits::kShortageRemembered) return std::nullopt;
  return Fault{.cause = "writes of snapshots fail: " + failed.cause,
               .remedy =
                   "look for errors of the disk and at how it is mounted (dmesg, mount); ckptd "
                   "needs no restart once it can be written again",
               .kind = failed.kind};
}

// Scrub counts units; of commits that it has not read since the start marked them, only these marks
// are known.
std::optional<Fault> HealthWatch::damaged_data(const Inputs& inputs) {
  const Marked& marked = inputs.marked;
  if (inputs.damaged_units == 0 && marked.commits == 0) return std::nullopt;
  const std::string_view missing =
      inputs.missing_file.empty() ? missing_file_of(marked.reason) : inputs.missing_file;
  const std::string put_back = missing.empty() ? "" : fmt::format("put {} back; ", missing);
  if (inputs.damaged_units == 0) {
    return Fault{.cause = fmt::format("{} damaged on the disk, the newest {}: {}",
                                      counted(marked.commits, "commit is", "commits are"),
                                      marked.newest, marked.reason),
                 .remedy = put_back +
                           "list them with ckptctl log; restores take older versions of their "
                           "units; save anew, and replace a disk that keeps losing bytes",
                 .kind = "damage"};
  }
  return Fault{
      .cause =
          fmt::format("{} damaged on the disk",
                      counted(inputs.damaged_units, "unit of commits is", "units of commits are")),
      .remedy = put_back +
                "list them with ckptctl scrub --status; restores take older versions of them; "
                "save anew, and replace a disk that keeps losing bytes",
      .kind = "damage"};
}

std::optional<Fault> HealthWatch::unchecked_data(const Inputs& inputs) {
  if (inputs.unchecked_units == 0) return std::nullopt;
  return Fault{
      .cause = fmt::format("scrub could not check {}: the last one: {}",
                           counted(inputs.unchecked_units, "unit of commits", "units of commits"),
                           inputs.unchecked_reason),
      .remedy =
          "let ckptd read the files of its data directory (owner, mode; dmesg tells of "
          "errors of the disk), then check again: ckptctl scrub",
      .kind = kind_of_cause(inputs.unchecked_reason)};
}

bool HealthWatch::is_due(Time now) {
  if (now < next_update_) return false;
  next_update_ = now + limits::kHealthPeriod;
  return true;
}

bool HealthWatch::shortage_is_old(Time now, uint64_t shortages) {
  if (std::exchange(shortages_seen_, shortages) != shortages) shortage_since_ = now;
  return now - shortage_since_ >= limits::kShortageRemembered;
}

void HealthWatch::update(const Inputs& inputs) {
  progress_.update(inputs.trained, inputs.waiting);
  std::optional<Fault> fault;
  if (inputs.shortage) fault = disk_full_fault(*inputs.shortage);
  report(Condition::kDiskFull, std::exchange(fault, {}), inputs.now_ns);
  if (!inputs.journal.ok()) {
    fault = Fault{.cause = inputs.journal.error().message,
                  .remedy = is_lost_name(inputs.journal.error().message)
                                ? "bring the file back as the reason says, then restart ckptd"
                                : "look for errors of the disk (dmesg), then restart ckptd, which "
                                  "recovers all that is durable",
                  .kind = "closed"};
  }
  report(Condition::kJournalClosed, std::exchange(fault, {}), inputs.now_ns);
  if (!inputs.catalog.ok()) {
    fault =
        Fault{.cause = "the catalog cannot be read or written: " + inputs.catalog.error().message,
              .remedy =
                  "ckptd makes it good from the journal by itself as soon as it can; see "
                  "that the disk has space and takes writes",
              .kind = kind_of_cause(inputs.catalog.error().message)};
  }
  report(Condition::kCatalogUnreadable, std::exchange(fault, {}), inputs.now_ns);
  if (inputs.journal.ok()) fault = failing_writes(inputs.now);
  report(Condition::kWritesFailing, std::exchange(fault, {}), inputs.now_ns);
  report(Condition::kDiskSlow, slow_disk(inputs), inputs.now_ns);
  fault = damaged_data(inputs);
  if (!fault && !lost_end_.cause.empty()) fault = lost_end_;
  report(Condition::kDamagedData, std::exchange(fault, {}), inputs.now_ns);
  report(Condition::kUncheckedData, unchecked_data(inputs), inputs.now_ns);
  report(Condition::kSnapshotsFailing, failing_snapshots(), inputs.now_ns);
  if (!accept_fault_.empty()) {
    fault = Fault{.cause = "new clients cannot connect: " + accept_fault_,
                  .remedy =
                      "raise the limit and restart ckptd, or end processes that hold sessions; "
                      "open sessions continue",
                  .kind = accept_fault_};
  }
  report(Condition::kCannotAccept, std::exchange(fault, {}), inputs.now_ns);
}

void HealthWatch::snapshot_failed(const std::string& run, const ckpt::SnapshotKey& key,
                                  const ckpt::Error& error, uint64_t now_ns) {
  std::string cause = error.message;
  const std::string named = fmt::format("run {} step {}: ", run, key.step);
  if (cause.starts_with(named)) cause.erase(0, named.size());
  std::string kind = is_disk_full(cause) ? std::string(kKindDiskFull) : kind_of_cause(cause);
  // kPermissionDenied: the file system was remounted read-only.
  const bool failed_write =
      error.code == ckpt::ErrorCode::kIo || error.code == ckpt::ErrorCode::kPermissionDenied;
  const bool full = is_disk_full(cause);
  if (failed_write && !full) {
    failed_writes_.is_new = true;
    failed_writes_.cause = cause;
    failed_writes_.kind = kind;
  }
  const bool first = progress_.failed(run,
                                      {.step = key.step,
                                       .cause = std::move(cause),
                                       .kind = std::move(kind),
                                       .in_store = failed_write || full},
                                      now_ns);
  // Later failures of the same cause are counted, and logged once a snapshot is durable again.
  log_event(first ? spdlog::level::warn : spdlog::level::debug, "snapshot_failed",
            {{"run", run},
             {"lineage", key.lineage},
             {"epoch", key.epoch},
             {"step", key.step},
             {"reason", error.message}},
            "{}", error.message);
}

void HealthWatch::set_lost_end(std::string cause, std::string remedy) {
  lost_end_ = {.cause = std::move(cause), .remedy = std::move(remedy), .kind = "journal_end"};
}

void HealthWatch::snapshot_durable(const std::string& run, const RunProgress::Durable& commit) {
  failed_writes_ = {};
  const auto failed = progress_.durable(run, commit);
  if (!failed || failed->count < kFailuresToReport) return;
  log_event(spdlog::level::info, "snapshots_recovered",
            {{"run", run},
             {"lineage", commit.lineage},
             {"step", commit.step},
             {"failed", failed->count},
             {"first_step", failed->first_step},
             {"last_step", failed->last_step}},
            "run {} step {}: snapshots are durable again; {} had failed, {}", run, commit.step,
            failed->count, steps_of(*failed));
}

}  // namespace ckptd
