// Scrub: when it may read, and what it reports.
#include <unistd.h>

#include <algorithm>

#include "ckptd/daemon_impl.h"

namespace ckptd {

void Daemon::Impl::start_scrub() {
  Scrub::Options of_scrub{
      .bytes_per_second = options.scrub_bytes_per_second,
      .interval = options.scrub_interval,
      .wall_clock_ns = options.wall_clock_ns,
      .others_busy = [this] { return disk_wanted(); },
      .journal = history.journal_source(),
      .may_begin = [this] { return may_read_back(); },
      .save_state = [this](const ScrubState& state) { return history.save_scrub_state(state); }};
  scrub = std::make_unique<Scrub>(restore_context(), history.catalog(), std::move(of_scrub));
}

// Gc runs only while nothing reads in the background; without a journal it never runs.
bool Daemon::Impl::may_read_back() const {
  const bool gc_waits = gc_wanted && history.journal().health().ok();
  return !draining && !gc_waits && !gc_running && history.current();
}

// True if there is a restore, or a snapshot that is being compared or written.
bool Daemon::Impl::disk_wanted() const {
  const Persist::Stats stats = persist->stats();
  if (!snapshots->idle() || stats.bytes_queued + stats.bytes_in_flight > 0) return true;
  return std::any_of(session_work.begin(), session_work.end(),
                     [](const auto& session) { return !session.second.restores.empty(); });
}

ScrubReport Daemon::Impl::scrub_report() const {
  ScrubReport report;
  report.state = scrub->state();
  report.bytes_per_second = options.scrub_bytes_per_second;
  report.interval = options.scrub_interval;
  report.commits_waiting = scrub->commits_waiting();
  const bool to_do = report.state.pass || report.commits_waiting > 0;
  report.doing = to_do ? "reading" : report.bytes_per_second == 0 ? "off" : "idle";
  if (scrub->yielding()) report.doing = "yielding";
  return report;
}

QueryAnswer Daemon::Impl::query_scrub(const Session& session, const std::string& args) {
  if (!may_use(session, ::geteuid())) {
    return error_answer(
        make_error(ErrorCode::kPermissionDenied, "scrub: only for the daemon's own user and root"));
  }
  const auto parsed = parse_scrub_args(args);
  if (!parsed.ok()) return error_answer(parsed.error());
  std::optional<uint64_t> begun;
  if (parsed->start) {
    if (draining) {
      return error_answer(
          make_error(ErrorCode::kUnavailable, "scrub: the daemon is shutting down"));
    }
    const auto number = scrub->begin_pass(parsed->bytes_per_second);
    if (!number.ok()) return error_answer(number.error());
    begun = *number;
  }
  return scrub_answer(query_context(session), scrub_report(), begun);
}

}  // namespace ckptd
