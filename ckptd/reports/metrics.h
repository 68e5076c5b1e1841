// Metrics of the daemon for Prometheus.
#pragma once

#include <string>

#include "ckptd/administration/administration.h"
#include "ckptd/background/space.h"
#include "ckptd/epochs/epochs.h"
#include "ckptd/health/health_watch.h"
#include "ckptd/history/history.h"
#include "ckptd/io/disk.h"
#include "ckptd/io/io_shape.h"
#include "ckptd/loop/turn.h"
#include "ckptd/persist/persist.h"
#include "ckptd/readers/readers.h"
#include "ckptd/reports/daemon_counters.h"
#include "ckptd/scrub/scrub.h"
#include "ckptd/sessions/session.h"
#include "ckptd/snapshots/snapshots.h"
#include "ckptd/staging/staging.h"

namespace ckptd {

// The parts of the daemon that metrics show. Valid for one call.
struct MetricViews {
  const DaemonCounters& counters;
  const History& history;
  const Sessions& sessions;
  const Epochs& epochs;
  const Snapshots& snapshots;
  const Staging& staging;
  const Persist& persist;
  const Disk& disk;
  const Readers& readers;
  const Administration& administration;
  const Space& space;
  const Scrub& scrub;
  const HealthWatch& health;  // has just checked the parts
  const Turn& turn;
  const IoShape& io_shape;
  ckpt::Result<Disk::Space> disk_space;
};

// Text format of Prometheus.
std::string write_metrics(const MetricViews& views);

}  // namespace ckptd
