#include "trainer/rank/version_agreement.h"

#include <algorithm>

#include "trainer/checkpoint/restore.h"

namespace moetrain {

Result<VersionSpread> compare_versions(const RankState& state, EpochComm& comm,
                                       const std::vector<RestoredUnit>& mine) {
  return comm.lend(
      [&](Comm& group) { return VersionSpread::compare(group, state.held.units.size(), mine); });
}

Result<std::vector<uint32_t>> agree_on_versions(RankState& state, EpochComm& comm, uint32_t lineage,
                                                std::vector<RestoredUnit> mine) {
  HeldState& held = state.held;
  std::vector<uint32_t> restored_again;
  for (;;) {
    CKPT_ASSIGN(const VersionSpread spread, compare_versions(state, comm, mine));
    if (spread.same()) return restored_again;
    // Terminates: each round takes some rank to an older version, and versions are finite.
    for (const auto& [step, ids] : spread.newer_here(mine)) {
      state.say(fmt::format("unit {} and {} more from step {}, as another rank has no newer",
                            held.units[ids.front()].name, ids.size() - 1, step));
      CKPT_ASSIGN(const RestoreSummary again,
                  restore_older(state.member.session(), state.options.run, {lineage, step},
                                held.units, ids, *held.memory, state.link.get()));
      for (const RestoredUnit& unit : again.versions) {
        std::ranges::find(mine, unit.unit, &RestoredUnit::unit)->step = unit.step;
        if (std::ranges::find(restored_again, unit.unit) == restored_again.end()) {
          restored_again.push_back(unit.unit);
        }
      }
      held.model->parameters_changed();
    }
  }
}

}  // namespace moetrain
