// Agreement: where a group stands when an epoch begins in which survivors go on. Pure.
//
// A step is applied by all ranks or by none. A rank enters the step's barrier when its part is
// complete (gradients reduced, norm and finite check done) and nothing has changed yet; whoever
// comes out of the barrier applies. So if one has applied step s, all others have entered the
// barrier, and keep the gradients of s: each of them can still apply it. If none has, s is
// repeated.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "formats/base/result.h"

namespace moetrain {

using ckpt::Result;

// What a rank says when it comes into the epoch.
struct RankStand {
  bool has_state = false;  // false: it is new
  uint64_t applied = 0;    // the newest step it has applied
  bool pending = false;    // it has the gradients of applied + 1, complete, from the last epoch
  // Membership changes it has been through to the end: of ranks at the same step, one that has been
  // through more knows more (what came back from ckptd, and what that lost).
  uint64_t changes = 0;
};
inline constexpr size_t kStandValues = 4;
std::vector<int64_t> to_values(const RankStand& stand);
RankStand stand_from(std::span<const int64_t> values);

struct Agreement {
  uint64_t step = 0;          // that all with state are at, once `applies` have applied it
  std::vector<bool> applies;  // by rank: has to apply its pending step first
  std::vector<bool> state;    // by rank: its state counts. Others get theirs from these
  uint32_t source = 0;        // the lowest rank that knows all there is to know
  uint64_t changes = 0;       // the most that anybody has been through
  bool repeats = false;       // somebody gives up a pending step, which is done again
};

// The same on every rank, from all stands by rank. A rank that is behind by what it cannot apply
// counts as new. kFailedPrecondition if nobody has state.
Result<Agreement> agree(std::span<const RankStand> stands);

}  // namespace moetrain
