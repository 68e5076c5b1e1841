// A rank process: trains, epoch after epoch, until the last step is saved.
//
// Survivors of a loss keep their process, data and model; only a dead rank is restarted. An elastic
// run restarts no rank: survivors also keep their state, and the next epoch continues with the
// remaining ranks (live_state.h). The loss of ckptd changes no membership: training continues, and
// snapshots wait until ckptd is back.
#pragma once

#include <atomic>

#include "trainer/elastic/events.h"
#include "trainer/elastic/rank_options.h"

namespace moetrain {

// Runs the rank to its end and returns the exit code of the process: 0 once the last step is saved,
// otherwise that of the error, which has been sent as a FatalEvent. `stop` and `drain` may be set
// by a signal handler. `stop`: all ranks save their current step, and end. `drain`, in an elastic
// run: this rank hands its state to the others and leaves.
int run_rank(const RankOptions& options, EventWriter& events, const std::atomic<bool>& stop,
             const std::atomic<bool>& drain);

}  // namespace moetrain
