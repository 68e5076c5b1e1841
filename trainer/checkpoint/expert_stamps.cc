#include "trainer/checkpoint/expert_stamps.h"

#include "formats/base/assert.h"

namespace moetrain {

ExpertPart part_of(const StateUnit& unit) {
  return unit.part == "weights" ? ExpertPart::kWeights : ExpertPart::kOptimizer;
}

std::vector<ExpertVersion> take_stamps(const std::vector<ExpertStamp>& table,
                                       const std::vector<StateUnit>& units,
                                       const std::vector<ExpertVersion>& versions,
                                       ExpertStamps& stamps) {
  CKPT_ASSERT(table.size() == stamps.list().size());
  std::vector<ExpertVersion> others;
  for (const ExpertVersion& version : versions) {
    const StateUnit& unit = units.at(version.unit);
    const ExpertStamp& stamp = table[stamps.index(unit)];
    // Number 0: no snapshot has taken it yet.
    if (stamp.snapshot > 0 && static_cast<uint64_t>(stamp.step) == version.step) {
      stamps.of(unit) = stamp;
    } else {
      others.push_back(version);
    }
  }
  return others;
}

}  // namespace moetrain
