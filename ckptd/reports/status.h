// The `status` document: identity, state and activity of ckptd, and its problems.
#pragma once

#include <cstdint>

#include "ckptd/background/scrub_control.h"
#include "ckptd/epochs/epochs.h"
#include "ckptd/health/health_watch.h"
#include "ckptd/history/history.h"
#include "ckptd/io/disk.h"
#include "ckptd/io/io_shape.h"
#include "ckptd/loop/turn.h"
#include "ckptd/persist/persist.h"
#include "ckptd/query/query.h"
#include "ckptd/readers/reader_holds.h"
#include "ckptd/sessions/session.h"
#include "ckptd/snapshots/snapshots.h"
#include "ckptd/staging/staging.h"

namespace ckptd {

// The parts of the daemon that status shows. Valid for one call.
struct StatusViews {
  const History& history;
  const Sessions& sessions;
  const Epochs& epochs;
  const Snapshots& snapshots;
  const Staging& staging;
  const Persist& persist;
  const Disk& disk;
  const ReaderHolds& holds;
  const ScrubControl& scrub;
  const HealthWatch& health;  // has just checked the parts
  const Turn& turn;
  const IoShape& io_shape;
  uint64_t arena_bytes_max = 0;
  bool is_draining = false;
};

// Runs and sessions of other users are listed only where a grant allows it.
QueryAnswer status_answer(const StatusViews& views, const Session& asker);

}  // namespace ckptd
