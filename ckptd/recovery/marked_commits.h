// MarkedCommits: the commits that the start found damaged, or that earlier starts did, as long as
// they are there. Scrub finds damage itself; these would be known to nobody until it reads them.
//
// Only a start sets and lifts marks (recovery.h), so that the list can only get shorter.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ckptd/catalog/catalog.h"

namespace ckptd {

class MarkedCommits {
 public:
  static constexpr size_t kCommitsMax = 256;

  // `commits`: oldest first. Only the newest kCommitsMax are kept.
  void use(std::vector<ckpt::SnapshotKey> commits);

  struct Standing {
    uint64_t commits = 0;
    std::string newest;  // RUN~LINEAGE@STEP
    std::string reason;  // of the newest
  };
  // Without commits that somebody has removed. The last answer while the catalog cannot be read.
  Standing standing(const Catalog& catalog);

 private:
  std::vector<ckpt::SnapshotKey> commits_;
  uint64_t seen_sequence_ = 0;  // of the catalog, when `standing_` was found
  Standing standing_;
};

}  // namespace ckptd
