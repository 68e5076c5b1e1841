#include "trainer/elastic/agreement.h"

#include <algorithm>

namespace moetrain {

std::vector<int64_t> to_values(const RankStatus& status) {
  return {status.has_state ? 1 : 0, static_cast<int64_t>(status.applied), status.pending ? 1 : 0,
          static_cast<int64_t>(status.changes)};
}

RankStatus status_from(std::span<const int64_t> values) {
  return {.has_state = values[0] != 0,
          .applied = static_cast<uint64_t>(values[1]),
          .pending = values[2] != 0,
          .changes = static_cast<uint64_t>(values[3])};
}

Result<Agreement> agree(std::span<const RankStatus> statuses) {
  Agreement agreement;
  bool any_state = false;
  for (const RankStatus& status : statuses) {
    if (!status.has_state) continue;
    any_state = true;
    agreement.step = std::max(agreement.step, status.applied);
  }
  if (!any_state) {
    return ckpt::make_error(ckpt::ErrorCode::kFailedPrecondition,
                            "survivors of an epoch of {} ranks continue, but no rank has state",
                            statuses.size());
  }
  for (const RankStatus& status : statuses) {
    const bool there = status.has_state && status.applied == agreement.step;
    const bool one_behind =
        status.has_state && status.applied + 1 == agreement.step && status.pending;
    agreement.applies.push_back(one_behind);
    agreement.state.push_back(there || one_behind);
    agreement.repeats = agreement.repeats || (there && status.pending);
    if (agreement.state.back()) {
      agreement.changes = std::max(agreement.changes, status.changes);
    }
  }
  for (size_t rank = statuses.size(); rank-- > 0;) {
    if (agreement.state[rank] && statuses[rank].changes == agreement.changes) {
      agreement.source = static_cast<uint32_t>(rank);
    }
  }
  return agreement;
}

}  // namespace moetrain
