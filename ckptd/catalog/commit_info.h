// CommitInfo: a commit as listings show it.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "formats/alarm.h"
#include "formats/base/ids.h"
#include "formats/commit.h"

namespace ckptd {

struct CommitInfo {
  ckpt::SnapshotKey snapshot;
  uint64_t sequence = 0;  // of its journal record: the order of commits
  uint64_t time_ns = 0;
  uint64_t bytes = 0;  // of all its units and blobs
  bool full = false;
  bool damaged = false;
  bool deleted = false;
  std::string reason;     // why it is damaged or deleted
  uint64_t ended_ns = 0;  // wall clock of the damage or deletion
  // Ascending. A deleted commit lists only units whose versions stay for views of kept commits.
  std::vector<ckpt::UnitId> units;
  bool kept_tokens = false;  // of a deleted commit: its token counts stay
  uint64_t lost_tokens = 0;  // by all its experts together, since the run began
  uint64_t moved = 0;        // last record that moved its bytes; 0: they lie where it wrote them
  std::map<std::string, double> metrics;
  ckpt::AlarmList alarms;
  uint32_t blobs = 0;  // a deleted commit has none
  uint64_t blob_bytes = 0;
  uint32_t grown = 0;  // units by which the run may have grown; a deleted commit names none
  bool operator==(const CommitInfo&) const = default;
};

// The part that follows from the commit's record alone: all but `sequence`, `bytes`, and the state
// that later records change.
CommitInfo info_of(const ckpt::fb::CommittedT& record);

}  // namespace ckptd
