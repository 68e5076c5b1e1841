// Wiring of health/: the state of the parts, as HealthWatch looks at it.
#include <algorithm>

#include "ckptd/daemon_impl.h"

namespace ckptd {

// Called by tick(), and before each report of the state.
void Daemon::Impl::look_at_health() {
  const Persist::Stats stats = persist->stats();
  if (health_watch.shortage_is_old(turn.now(), stats.shortages)) persist->forget_shortages();
  HealthWatch::Look look{.now = turn.now(), .now_ns = turn.wall_clock_ns()};
  if (auto shortage = persist->shortage(); shortage.ok()) look.shortage = *std::move(shortage);
  look.journal = history.journal().health();
  look.catalog = history.catalog().health();
  look.trainers_wait =
      std::any_of(waiting_begins.begin(), waiting_begins.end(),
                  [](const auto& waiting) { return !waiting.second.empty(); }) ||
      std::any_of(session_work.begin(), session_work.end(),
                  [](const auto& session) { return !session.second.lease_waits.empty(); });
  look.disk_busy = !persist->idle();
  look.bytes_to_write = stats.bytes_queued + stats.bytes_in_flight;
  look.disk_bytes_per_second = stats.disk_bytes_per_second;
  const ScrubState& scrubbed = scrub.state();
  look.damaged_units = scrubbed.damages.size() + scrubbed.damages_left_out;
  const bool news = scrubbed.pass && scrubbed.pass->unchecked > 0;
  const ScrubPass& pass = news ? *scrubbed.pass : scrubbed.last;
  look.unchecked_units = pass.unchecked;
  look.unchecked_reason = pass.unchecked_reason;
  look.waiting = snapshots_waiting();
  look.trained = names_of_trained();
  health_watch.look(look);
}

// Unset if the catalog lacks one of them.
std::optional<std::set<std::string>> Daemon::Impl::names_of_trained() const {
  std::set<std::string> names;
  for (const ckpt::RunId id : epochs.groups().trained_runs()) {
    const auto run = history.catalog().run(id);
    if (!run.ok()) return std::nullopt;
    names.insert(run->name);
  }
  return names;
}

std::map<std::string, RunProgress::Waiting> Daemon::Impl::snapshots_waiting() const {
  std::map<std::string, RunProgress::Waiting> waiting;
  for (const auto& [key, open] : open_snapshots) {
    if (!ingest.is_staged(key)) continue;
    RunProgress::Waiting& of_run = waiting[open.run_name];
    const auto waited_ns = static_cast<uint64_t>((turn.now() - open.staged_at).count());
    if (of_run.count++ == 0 || waited_ns > of_run.longest_ns) {
      of_run.first_step = key.step;
      of_run.longest_ns = waited_ns;
    }
  }
  return waiting;
}

}  // namespace ckptd
