// Restores single experts that no rank holds, while the run continues.
#pragma once

#include <ckpt/client.hpp>
#include <set>
#include <string>
#include <vector>

#include "trainer/checkpoint/expert_stamps.h"
#include "trainer/checkpoint/restored_versions.h"
#include "trainer/checkpoint/state_memory.h"
#include "trainer/model/model.h"

namespace moetrain {

struct ExpertRestore {
  uint64_t bytes_memory = 0;
  uint64_t bytes_disk = 0;
  std::vector<uint32_t> stale_units;  // older than the run's step
  std::vector<std::string> notes;     // "unit NAME: ...": a newer version cannot be read
  std::vector<RestoredUnit> versions;
  std::set<uint32_t> in_memory;  // restored from a version that is only in memory
};

// Fills weights, moments and stamps of these experts of the grid, which `model` holds, each from
// its newest version in the lineage; `step` is where the run is. An expert without any version
// restarts from the seed, with zero stamps. Afterwards call Model::parameters_changed(). Errors are
// those of a restore; the memory of these experts is undefined then.
Result<ExpertRestore> restore_experts(ckpt::client::Session& session, const std::string& run,
                                      uint32_t lineage, uint64_t step,
                                      const std::set<uint32_t>& experts,
                                      const std::vector<StateUnit>& units,
                                      const StateMemory& memory, Model& model, uint64_t seed,
                                      ExpertStamps& stamps);

}  // namespace moetrain
