// Which commits are to be read.
#pragma once

#include <optional>
#include <vector>

#include "ckptd/catalog/catalog.h"

namespace ckptd {

// A commit to check. Its record is read when its turn comes.
struct VerifyTargetCommit {
  ckpt::RunId run = 0;
  ViewPoint point;
  uint64_t sequence = 0;  // of its journal record
};

// The commits that are chosen, oldest first within a run: all of the runs of which something is
// left, or those that the view at the point, of one run, is made of. The error of a catalog that
// cannot be read.
Result<std::vector<VerifyTargetCommit>> verify_targets(const Catalog& catalog,
                                                       const std::vector<ckpt::RunId>& runs,
                                                       const std::optional<ViewPoint>& point);

// All of a run of which something is left whose records have this sequence number or a later one,
// oldest first; the newest `most` of them. The error of a catalog that cannot be read.
Result<std::vector<VerifyTargetCommit>> verify_targets_from(const Catalog& catalog, ckpt::RunId run,
                                                            uint64_t sequence, size_t most);

}  // namespace ckptd
