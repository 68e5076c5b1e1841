// Brings the ranks of a group to the same version of each restored unit. ckptd chooses the fallback
// of each restore on its own, so ranks that restored the same unit may have different versions.
#pragma once

#include <cstdint>
#include <vector>

#include "trainer/checkpoint/restored_versions.h"
#include "trainer/rank/epoch_comm.h"
#include "trainer/rank/rank_state.h"

namespace moetrain {

// A collective: compares what all ranks have restored.
Result<VersionSpread> compare_versions(const RankState& state, EpochComm& comm,
                                       const std::vector<RestoredUnit>& mine);

// A collective: each rank restores older versions of experts' units, until no rank has a newer
// version of a unit than another. Returns the units that this rank restored again, each once.
// `mine`: what it had restored of the lineage before.
Result<std::vector<uint32_t>> agree_on_versions(RankState& state, EpochComm& comm, uint32_t lineage,
                                                std::vector<RestoredUnit> mine);

}  // namespace moetrain
