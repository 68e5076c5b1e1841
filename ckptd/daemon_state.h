// The daemon's own counters. Private to the sources daemon_*.cc.
#pragma once

#include <cstdint>

#include "ckptd/catalog/catalog.h"
#include "ckptd/observe/run_progress.h"

namespace ckptd {

// A run's newest commit as shown in status and metrics.
RunProgress::Durable durable_of(const CommitInfo& commit);  // daemon_metrics.cc

struct Counters {
  uint64_t arenas_adopted = 0;
  uint64_t slabs_taken_back = 0;      // at startup, from a keeper
  uint64_t slabs_not_taken_back = 0;  // likewise: failed a check
  uint64_t protocol_errors = 0;
};

}  // namespace ckptd
