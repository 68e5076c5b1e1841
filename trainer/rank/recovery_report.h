// RecoveryReport: the cost of bringing a rank's state to the group's step, and the losses. A value:
// StateRestorer or StateMigrator fills it in, EpochDriver and ReplanDriver send it with their
// events.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainer/rank/rank_state.h"

namespace moetrain {

struct RecoveryReport {
  RestoredState restored;  // from ckptd
  Relayout relayout;       // between ranks; and the lost tokens of the run so far

  // These units were restored again, from older versions.
  void add_stale(const std::vector<uint32_t>& units);
  // Takes the state's current figures of lost tokens.
  void take_losses(const RankState& state);
};

// "; 4 experts of each layer from now on, 2 before"; empty if the checkpoint's K is still
// `k_before`. For the end of a message.
std::string k_change_text(const PartialCheckpoint& partial, uint32_t k_before);

}  // namespace moetrain
