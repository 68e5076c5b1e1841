// Views of the modules for reports/.
#include "ckptd/daemon_impl.h"

namespace ckptd {

StatusViews Daemon::Impl::status_views() const {
  return {.history = history,
          .sessions = sessions,
          .epochs = epochs,
          .snapshots = *snapshots,
          .staging = *staging,
          .persist = *persist,
          .disk = disk,
          .holds = readers.holds(),
          .scrub = scrub,
          .health = health_watch,
          .turn = turn,
          .io_shape = io_shape,
          .arena_bytes_max = options.staging.arena_bytes_total,
          .is_draining = draining};
}

MetricViews Daemon::Impl::metric_views() const {
  return {.counters = counters,
          .history = history,
          .sessions = sessions,
          .epochs = epochs,
          .snapshots = *snapshots,
          .staging = *staging,
          .persist = *persist,
          .disk = disk,
          .readers = readers,
          .administration = administration,
          .space = space,
          .scrub = scrub.scrub(),
          .health = health_watch,
          .turn = turn,
          .io_shape = io_shape,
          .disk_space = disk.space()};
}

}  // namespace ckptd
