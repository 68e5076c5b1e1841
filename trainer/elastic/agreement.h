// Agreement: the common step of a group at the start of an epoch in which survivors continue. Pure.
//
// A step is applied by all ranks or by none. A rank enters the step's barrier when its part is
// complete (gradients reduced, norm and finite check done) and nothing has changed yet; a rank that
// leaves the barrier applies. So if one rank has applied step s, all others have entered the
// barrier, and keep the gradients of s: each of them can still apply it. If no rank has, s is
// repeated.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "formats/base/result.h"

namespace moetrain {

using ckpt::Result;

// State of a rank at the start of the epoch, as sent to the others.
struct RankStatus {
  bool has_state = false;  // false: a new rank
  uint64_t applied = 0;    // the newest step that the rank has applied
  bool pending = false;    // has the complete gradients of applied + 1 from the last epoch
  // Completed membership changes. Of ranks at the same step, the one with more changes knows more:
  // versions restored from ckptd, and the loss by that.
  uint64_t changes = 0;
};
inline constexpr size_t kStatusValues = 4;
std::vector<int64_t> to_values(const RankStatus& status);
RankStatus status_from(std::span<const int64_t> values);

struct Agreement {
  uint64_t step = 0;          // common step of all ranks with state, after `applies`
  std::vector<bool> applies;  // by rank: must first apply its pending step
  std::vector<bool> state;    // by rank: its state counts. The others get theirs from these
  uint32_t source = 0;        // the lowest rank with complete knowledge
  uint64_t changes = 0;       // the most of any rank
  bool repeats = false;       // a rank discards a pending step, which is repeated
};

// Computes the agreement, the same on every rank, from all statuses by rank. A rank that lags by a
// step that it cannot apply counts as new. kFailedPrecondition if no rank has state.
Result<Agreement> agree(std::span<const RankStatus> statuses);

}  // namespace moetrain
