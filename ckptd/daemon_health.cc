#include "ckptd/daemon_health.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "ckptd/daemon_impl.h"
#include "ckptd/limits.h"
#include "ckptd/observe/log_event.h"
#include "formats/base/counted.h"
#include "formats/base/parse.h"

namespace ckptd {

using ckpt::base::format_age;
using ckpt::base::format_size;

namespace {

// One failed snapshot is what a lost rank costs.
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

// Trainers wait while the disk writes: once that has lasted for a while, the disk is what holds
// them up.
std::optional<Fault> HealthWatch::slow_disk(const Look& look) {
  if (!look.trainers_wait || !look.disk_busy) {
    waits_since_.reset();
    return std::nullopt;
  }
  if (!waits_since_) waits_since_ = look.now;
  const auto waited = look.now - *waits_since_;
  if (waited < limits::kDiskSlowAfter) return std::nullopt;
  return Fault{
      .cause = fmt::format("trainers wait for the disk, which has {} to write and takes {}/s",
                           format_size(look.bytes_to_write),
                           format_size(static_cast<uint64_t>(look.disk_bytes_per_second))),
      .remedy = "checkpoint less often, take a faster disk, or let the arena hold more snapshots",
      .kind = "backpressure"};
}

std::optional<Fault> HealthWatch::failing_snapshots(const Look& look) {
  std::vector<std::string> over;
  const RunProgress::Run* worst = nullptr;
  std::string worst_run;
  size_t failing = 0;
  for (const auto& [name, run] : progress_.runs()) {
    if (!run.failing) continue;
    if (!look.is_trained(name)) {
      over.push_back(name);
      continue;
    }
    if (run.failing->count < kFailuresToReport) continue;
    ++failing;
    if (worst != nullptr && worst->failing->since_ns <= run.failing->since_ns) continue;
    worst = &run;
    worst_run = name;
  }
  for (const std::string& name : over) progress_.ended(name);
  if (worst == nullptr) return std::nullopt;
  const RunProgress::Failing& of = *worst->failing;
  std::string cause =
      fmt::format("run {}: {} in a row failed, steps {} to {}; {}: {}", worst_run,
                  ckpt::base::counted(of.count, "snapshot"), of.first_step, of.last_step,
                  worst->durable ? fmt::format("the last durable step is {}", worst->durable->step)
                                 : "no step is durable",
                  of.cause);
  if (failing > 1) cause += "; so it is with " + ckpt::base::counted(failing - 1, "more run");
  return Fault{.cause = std::move(cause),
               .remedy = "remove the cause; the trainer saves again at its next checkpoint",
               .kind = worst_run + ": " + of.kind};
}

bool HealthWatch::is_due(Time now) {
  if (now < next_look_) return false;
  next_look_ = now + limits::kHealthPeriod;
  return true;
}

bool HealthWatch::shortage_is_old(Time now, uint64_t shortages) {
  if (std::exchange(shortages_seen_, shortages) != shortages) shortage_since_ = now;
  return now - shortage_since_ >= limits::kShortageRemembered;
}

void HealthWatch::look(const Look& look) {
  std::optional<Fault> fault;
  if (look.shortage) fault = disk_full_fault(*look.shortage);
  report(Condition::kDiskFull, std::exchange(fault, {}), look.now_ns);
  if (!look.journal.ok()) {
    fault = Fault{.cause = look.journal.error().message,
                  .remedy =
                      "look for errors of the disk (dmesg), then restart ckptd, which "
                      "recovers all that is durable",
                  .kind = "closed"};
  }
  report(Condition::kJournalClosed, std::exchange(fault, {}), look.now_ns);
  if (!look.catalog.ok()) {
    fault = Fault{.cause = "the catalog cannot be read or written: " + look.catalog.error().message,
                  .remedy =
                      "ckptd makes it good from the journal by itself as soon as it can; see "
                      "that the disk has space and takes writes",
                  .kind = kind_of_cause(look.catalog.error().message)};
  }
  report(Condition::kCatalogUnreadable, std::exchange(fault, {}), look.now_ns);
  report(Condition::kDiskSlow, slow_disk(look), look.now_ns);
  if (look.damaged_units > 0) {
    fault = Fault{.cause = fmt::format("{} damaged on the disk",
                                       ckpt::base::counted(look.damaged_units, "unit of commits is",
                                                           "units of commits are")),
                  .remedy =
                      "list them with ckptctl scrub --status; restores take older versions of "
                      "them; save anew, and replace a disk that goes on losing bytes",
                  .kind = "damage"};
  }
  report(Condition::kDamagedData, std::exchange(fault, {}), look.now_ns);
  report(Condition::kSnapshotsFailing, failing_snapshots(look), look.now_ns);
}

void HealthWatch::snapshot_failed(const std::string& run, const ckpt::SnapshotKey& key,
                                  const ckpt::Error& error, uint64_t now_ns) {
  std::string cause = error.message;
  const std::string named = fmt::format("run {} step {}: ", run, key.step);
  if (cause.starts_with(named)) cause.erase(0, named.size());
  std::string kind = is_disk_full(cause) ? "disk full" : kind_of_cause(cause);
  const bool first = progress_.failed(run, key.step, std::move(cause), std::move(kind), now_ns);
  // Later failures for the same cause are counted, and logged when a snapshot is durable again.
  log_event(first ? spdlog::level::warn : spdlog::level::debug, "snapshot_failed",
            {{"run", run},
             {"lineage", key.lineage},
             {"epoch", key.epoch},
             {"step", key.step},
             {"reason", error.message}},
            "{}", error.message);
}

void HealthWatch::snapshot_durable(const std::string& run, const RunProgress::Durable& commit) {
  const auto failed = progress_.durable(run, commit);
  if (!failed || failed->count < kFailuresToReport) return;
  log_event(spdlog::level::info, "snapshots_recovered",
            {{"run", run},
             {"lineage", commit.lineage},
             {"step", commit.step},
             {"failed", failed->count},
             {"first_step", failed->first_step},
             {"last_step", failed->last_step}},
            "run {} step {}: snapshots are durable again; {} had failed, steps {} to {}", run,
            commit.step, failed->count, failed->first_step, failed->last_step);
}

// Called by tick() and before anybody is told of the state.
void Daemon::Impl::look_at_health() {
  const Persist::Stats stats = persist->stats();
  if (health_watch.shortage_is_old(now, stats.shortages)) persist->forget_shortage();
  HealthWatch::Look look{.now = now, .now_ns = wall_clock_ns()};
  if (auto shortage = persist->shortage(); shortage.ok()) look.shortage = *std::move(shortage);
  look.journal = journal->health();
  look.catalog = catalog->health();
  look.trainers_wait = std::any_of(waiting_begins.begin(), waiting_begins.end(),
                                   [](const auto& waiting) { return !waiting.second.empty(); }) ||
                       std::any_of(sessions.begin(), sessions.end(), [](const auto& session) {
                         return !session.second.lease_waits.empty();
                       });
  look.disk_busy = !persist->idle();
  look.bytes_to_write = stats.bytes_queued + stats.bytes_in_flight;
  look.disk_bytes_per_second = stats.disk_bytes_per_second;
  look.damaged_units = scrub->state().damages.size() + scrub->state().damages_left_out;
  look.is_trained = [this](const std::string& run) { return is_trained(run); };
  health_watch.look(look);
}

bool Daemon::Impl::is_trained(const std::string& run) const {
  const auto info = catalog->run(run);
  return info.ok() && groups.in_use(info->id);
}

}  // namespace ckptd
