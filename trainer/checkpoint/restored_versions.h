// Compares the versions that the ranks of a group have restored.
//
// ckptd decides for each restore which version to fall back to if one cannot be read
// (docs/internals/restore.md). So ranks that restore the same unit may get different versions of
// it: one rank's read fails, another's does not. Then replicas would differ from then on.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "formats/base/result.h"
#include "trainer/comm/comm.h"

namespace moetrain {

struct RestoredUnit {
  uint32_t unit = 0;
  uint64_t step = 0;  // of the version; a lineage has one commit per step
  bool operator==(const RestoredUnit&) const = default;
};

// Oldest and newest version of each unit over all ranks.
class VersionSpread {
 public:
  // Collective. Every rank gives its restored units, out of `units` in all, each once.
  static Result<VersionSpread> compare(Comm& comm, size_t units,
                                       const std::vector<RestoredUnit>& mine);

  bool restored(uint32_t unit) const { return newest_[unit] >= 0; }
  uint64_t oldest(uint32_t unit) const { return static_cast<uint64_t>(oldest_[unit]); }
  bool same() const { return newest_ == oldest_; }
  // Units that this rank must restore again, by the step to restore from: those of which another
  // rank has an older version.
  std::map<uint64_t, std::vector<uint32_t>> newer_here(const std::vector<RestoredUnit>& mine) const;

 private:
  std::vector<int64_t> newest_;  // [unit]; -1: restored by no rank
  std::vector<int64_t> oldest_;
};

}  // namespace moetrain
