// The daemon's state of changes of history that wait. Private to the sources daemon_*.cc.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "ckptd/gc/gc.h"
#include "ckptd/observe/run_progress.h"
#include "ckptd/persist/persist.h"
#include "ckptd/staging/staging.h"
#include "formats/plan.h"
#include "formats/wire/wire_generated.h"

namespace ckptd {

namespace fb = ckpt::fb;
using ckpt::SessionId;
using ckpt::SnapshotKey;

};

// A run whose first registration is being written.
struct CreatingRun {
  uid_t uid = 0;
  std::vector<ckpt::UnitSpec> units;
  std::vector<std::pair<SessionId, uint64_t>> waiting;  // session, request
};

// A change of history that a client requested.
struct Administration {
  SessionId session = 0;
  uint64_t request = 0;
  std::string verb;
  std::string args;
  // Instead of a verb: units of a run that replaces a run of the same name.
  std::shared_ptr<const fb::RegisterUnitsT> registration = nullptr;
};

// A run's newest commit as shown in status and metrics.
RunProgress::Durable durable_of(const CommitInfo& commit);  // daemon_metrics.cc

struct Counters {
  uint64_t commits_deleted = 0;
  uint64_t arenas_adopted = 0;
  uint64_t slabs_taken_back = 0;      // at startup, from a keeper
  uint64_t slabs_not_taken_back = 0;  // likewise: failed a check
  uint64_t protocol_errors = 0;
};

}  // namespace ckptd
