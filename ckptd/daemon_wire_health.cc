// Wiring of health/: the state of the parts, as inputs of HealthWatch.
#include "ckptd/daemon_impl.h"
#include "ckptd/io/store_paths.h"

namespace ckptd {

// Called by tick(), and before each report of the state.
void Daemon::Impl::update_health() {
  const Persist::Stats stats = persist->stats();
  if (health_watch.shortage_is_old(turn.now(), stats.shortages)) persist->forget_shortages();
  HealthWatch::Inputs inputs{.now = turn.now(), .now_ns = turn.wall_clock_ns()};
  if (auto shortage = persist->shortage(); shortage.ok()) inputs.shortage = *std::move(shortage);
  inputs.journal = history.journal().health();
  inputs.catalog = history.catalog().health();
  inputs.trainers_wait = snapshots->trainers_wait();
  inputs.disk_busy = !persist->idle();
  inputs.bytes_to_write = stats.bytes_queued + stats.bytes_in_flight;
  inputs.disk_bytes_per_second = stats.disk_bytes_per_second;
  const ScrubState& scrubbed = scrub.state();
  inputs.damaged_units = scrubbed.damages.size() + scrubbed.damages_left_out;
  for (const ScrubDamage& damage : scrubbed.damages) {
    inputs.missing_file = missing_file_of(damage.reason);
    if (!inputs.missing_file.empty()) break;
  }
  const MarkedCommits::Standing marked = marked_commits.standing(history.catalog());
  inputs.marked = {.commits = marked.commits, .newest = marked.newest, .reason = marked.reason};
  const bool news = scrubbed.pass && scrubbed.pass->unchecked > 0;
  const ScrubPass& pass = news ? *scrubbed.pass : scrubbed.last;
  inputs.unchecked_units = pass.unchecked;
  inputs.unchecked_reason = pass.unchecked_reason;
  inputs.waiting = snapshots->waiting();
  inputs.trained = names_of_trained();
  health_watch.update(inputs);
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

}  // namespace ckptd
