#include "trainer/rank/recovery_report.h"

#include <algorithm>

#include "formats/base/counted.h"

namespace moetrain {

void RecoveryReport::add_stale(const std::vector<uint32_t>& units) {
  std::vector<uint32_t>& stale = restored.stale_units;
  for (const uint32_t unit : units) {
    if (std::ranges::find(stale, unit) == stale.end()) stale.push_back(unit);
  }
}

void RecoveryReport::take_losses(const RankState& state) {
  const std::vector<int64_t>& routed = state.progress.routed_tokens;
  relayout.plt = state.partial.plt(routed);
  relayout.plt_rollback = state.partial.meter().plt_rollback(routed);
  relayout.lost = state.partial.lost();
}

std::string k_change_text(const PartialCheckpoint& partial, uint32_t k_before) {
  const uint32_t k = partial.k();
  if (k == k_before) return {};
  return fmt::format("; {} of each layer from now on, {} before", ckpt::base::counted(k, "expert"),
                     k_before);
}

}  // namespace moetrain
