#include "ckptd/dedup/newest_fragments.h"

#include <algorithm>

#include "ckptd/dedup/dedup_plan.h"

namespace ckptd {

void NewestFragments::set(ckpt::UnitId unit, std::vector<Sum> sums) {
  std::sort(sums.begin(), sums.end(),
            [](const Sum& a, const Sum& b) { return a.offset < b.offset; });
  sums.shrink_to_fit();
  sums_[unit] = std::move(sums);
}

bool NewestFragments::may_have(const ckpt::ExtentFragment& fragment) const {
  const auto found = sums_.find(fragment.unit);
  if (found == sums_.end()) return false;
  return !exact_cover(found->second, fragment.offset, fragment.length, fragment.crc32c).empty();
}

}  // namespace ckptd
