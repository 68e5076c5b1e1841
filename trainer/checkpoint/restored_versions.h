// Which versions the ranks of a group were given, compared.
//
// ckptd decides restore by restore what to fall back to where a version cannot be read
// (ckptd/restore/README.md). So ranks that restore the same unit may get different versions of it:
// one rank's read fails, another's does not. Replicas that differ would stay different.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "formats/base/result.h"
#include "trainer/comm/comm.h"

namespace moetrain {

struct RestoredUnit {
  uint32_t unit = 0;
  uint64_t step = 0;  // of the version; a line of history has one commit of a step
  bool operator==(const RestoredUnit&) const = default;
};

// Of all ranks together.
class VersionSpread {
 public:
  // A collective: every rank gives what it has restored, of so many units, each once.
  static Result<VersionSpread> compare(Comm& comm, size_t units,
                                       const std::vector<RestoredUnit>& mine);

  bool restored(uint32_t unit) const { return newest_[unit] >= 0; }
  uint64_t oldest(uint32_t unit) const { return static_cast<uint64_t>(oldest_[unit]); }
  bool same() const { return newest_ == oldest_; }
  // What this rank has to restore again, by the step to restore it from: the units of which another
  // rank has an older version.
  std::map<uint64_t, std::vector<uint32_t>> newer_here(const std::vector<RestoredUnit>& mine) const;

 private:
  std::vector<int64_t> newest_;  // [unit]; -1: nobody restored it
  std::vector<int64_t> oldest_;
};

}  // namespace moetrain
