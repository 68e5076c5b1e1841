// What really lies on the disk: worked out from the journal and the bytes, by nothing that the
// daemon reads with. The oracle of histories in which the disk lies.
#pragma once

#include <set>
#include <utility>

#include "tests/ckptd/daemon/world.h"

namespace ckptd::testing {

// By lineage and step: commits of the journal of which some byte, or the header of a segment file
// that they lie in, is not what it was when they were written. Of a world at rest, with one run.
std::set<std::pair<ckpt::LineageId, ckpt::Step>> spoiled_commits(World& world);

}  // namespace ckptd::testing
