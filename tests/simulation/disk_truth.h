// The true state of the disk, computed from the journal and the bytes without the daemon's readers.
// It is the oracle of histories in which the disk reports false success.
#pragma once

#include <set>
#include <utility>

#include "tests/ckptd/daemon/world.h"

namespace ckptd::testing {

// Commits, by lineage and step, with a byte or a segment header that is not as it was written. The
// world must be at rest, and have one run.
std::set<std::pair<ckpt::LineageId, ckpt::Step>> spoiled_commits(World& world);

}  // namespace ckptd::testing
