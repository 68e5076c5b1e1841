// Wiring of background/: what space and scrub need from the rest of the daemon.
#include "ckptd/daemon_impl.h"

namespace ckptd {

Space::Needs Daemon::Impl::space_needs() {
  return {.executor = executor,
          .history = history,
          .turn = turn,
          .replies = replies,
          .is_draining = [this] { return draining; },
          .next_reader = [this] { return readers.numbers().next(); },
          .oldest_reader = [this] { return readers.numbers().oldest(); },
          .being_written =
              [this](ckpt::SegmentId segment) { return snapshots->being_written(segment); },
          .stop_background_reads = [this] { return scrub.pause_reads(); }};
}

ScrubControl::Needs Daemon::Impl::scrub_needs() {
  return {.history = history,
          .turn = turn,
          .bytes_per_second = options.scrub_bytes_per_second,
          .interval = options.scrub_interval,
          .is_draining = [this] { return draining; },
          .disk_wanted = [this] { return disk_wanted(); },
          .space_wants_disk = [this] { return space.wants_disk(); },
          .query_context = [this](const Session& session) { return query_context(session); }};
}

// True if there is a restore, or a snapshot that is being compared or written.
bool Daemon::Impl::disk_wanted() const {
  const Persist::Stats stats = persist->stats();
  if (!snapshots->idle() || stats.bytes_queued + stats.bytes_in_flight > 0) return true;
  return readers.restores().any_open();
}

}  // namespace ckptd
