// A rank process: trains, epoch after epoch, until the last step is saved.
//
//   open the session, register the units
//   join an epoch -> connect the collectives -> restore what the epoch says -> train
//        ^                                                                      |
//        '---- a peer is gone: leave the collectives, drop open snapshots <-----'
//
// Survivors keep their process, data and model; only a rank that died is started anew. In an
// elastic run none is: survivors keep their state as well, and the next epoch goes on
// (live_state.h) with as many ranks as are left. The loss of
// ckptd is not the loss of a peer: training goes on, and snapshots wait until it is back.
#pragma once

#include <atomic>

#include "trainer/elastic/events.h"
#include "trainer/elastic/rank_options.h"

namespace moetrain {

// Runs the rank to its end; returns the exit code of the process: 0 when the last step is saved (or
// `stop` was set and the step it stopped after is saved), otherwise that of the error, which has
// been sent as a kFatal event.
// `drain`, in an elastic run: this rank hands its state to the others and leaves.
int run_rank(const RankOptions& options, EventWriter& events, const std::atomic<bool>& stop,
             const std::atomic<bool>& drain);

}  // namespace moetrain
