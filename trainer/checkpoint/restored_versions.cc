#include "trainer/checkpoint/restored_versions.h"

#include <span>

#include "formats/base/assert.h"

namespace moetrain {

Result<VersionSpread> VersionSpread::compare(Comm& comm, size_t units,
                                             const std::vector<RestoredUnit>& mine) {
  // A minimum by way of a maximum: steps are counted down from the last possible step.
  std::vector<int64_t> steps(2 * units, -1);
  for (const RestoredUnit& one : mine) {
    CKPT_ASSERT(one.unit < units && one.step <= static_cast<uint64_t>(INT64_MAX));
    steps[one.unit] = static_cast<int64_t>(one.step);
    steps[units + one.unit] = INT64_MAX - static_cast<int64_t>(one.step);
  }
  CKPT_TRY(comm.all_reduce_max(std::span(steps)));
  VersionSpread spread;
  spread.newest_.assign(steps.begin(), steps.begin() + static_cast<ptrdiff_t>(units));
  spread.oldest_.reserve(units);
  for (size_t unit = 0; unit < units; ++unit) {
    const int64_t left = steps[units + unit];
    spread.oldest_.push_back(left < 0 ? -1 : INT64_MAX - left);
  }
  return spread;
}

std::map<uint64_t, std::vector<uint32_t>> VersionSpread::newer_here(
    const std::vector<RestoredUnit>& mine) const {
  std::map<uint64_t, std::vector<uint32_t>> newer;
  for (const RestoredUnit& one : mine) {
    if (one.step > oldest(one.unit)) newer[oldest(one.unit)].push_back(one.unit);
  }
  return newer;
}

}  // namespace moetrain
