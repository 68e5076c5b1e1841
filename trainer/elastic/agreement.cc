#include "trainer/elastic/agreement.h"

#include <algorithm>

namespace moetrain {

std::vector<int64_t> to_values(const RankStand& stand) {
  return {stand.has_state ? 1 : 0, static_cast<int64_t>(stand.applied), stand.pending ? 1 : 0,
          static_cast<int64_t>(stand.changes)};
}

RankStand stand_from(std::span<const int64_t> values) {
  return {.has_state = values[0] != 0,
          .applied = static_cast<uint64_t>(values[1]),
          .pending = values[2] != 0,
          .changes = static_cast<uint64_t>(values[3])};
}

Result<Agreement> agree(std::span<const RankStand> stands) {
  Agreement agreement;
  bool anybody = false;
  for (const RankStand& stand : stands) {
    if (!stand.has_state) continue;
    anybody = true;
    agreement.step = std::max(agreement.step, stand.applied);
  }
  if (!anybody) {
    return ckpt::make_error(ckpt::ErrorCode::kFailedPrecondition,
                            "an epoch of {} ranks goes on, but none of them has state",
                            stands.size());
  }
  for (const RankStand& stand : stands) {
    const bool there = stand.has_state && stand.applied == agreement.step;
    const bool one_behind = stand.has_state && stand.applied + 1 == agreement.step && stand.pending;
    agreement.applies.push_back(one_behind);
    agreement.state.push_back(there || one_behind);
    agreement.repeats = agreement.repeats || (there && stand.pending);
    if (agreement.state.back()) {
      agreement.changes = std::max(agreement.changes, stand.changes);
    }
  }
  for (size_t rank = stands.size(); rank-- > 0;) {
    if (agreement.state[rank] && stands[rank].changes == agreement.changes) {
      agreement.source = static_cast<uint32_t>(rank);
    }
  }
  return agreement;
}

}  // namespace moetrain
