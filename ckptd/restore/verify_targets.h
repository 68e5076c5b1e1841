// The commits that a verify reads.
#pragma once

#include <optional>
#include <vector>

#include "ckptd/catalog/catalog.h"

namespace ckptd {

// A commit to check. Its record is read just before the check.
struct VerifyTargetCommit {
  ckpt::RunId run = 0;
  ViewPoint point;
  uint64_t sequence = 0;  // of its journal record
};

// The chosen commits, oldest first within a run: all commits of the runs that have live
// extents, or those of the view at the point of the single run. Fails if the catalog cannot be
// read.
Result<std::vector<VerifyTargetCommit>> verify_targets(const Catalog& catalog,
                                                       const std::vector<ckpt::RunId>& runs,
                                                       const std::optional<ViewPoint>& point);

// The commits of a run that have live extents and whose records have this sequence number or a
// later one, oldest first; the newest `most` of them. Fails if the catalog cannot be read.
Result<std::vector<VerifyTargetCommit>> verify_targets_from(const Catalog& catalog, ckpt::RunId run,
                                                            uint64_t sequence, size_t most);

}  // namespace ckptd
