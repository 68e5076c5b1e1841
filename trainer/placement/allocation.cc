#include "trainer/placement/allocation.h"

#include <algorithm>
#include <numeric>

namespace moetrain {

using ckpt::ErrorCode;
using ckpt::make_error;

__extension__ using Uint128 = unsigned __int128;  // tokens times slots

Result<std::vector<uint32_t>> allocate_replicas(std::span<const uint64_t> loads, uint32_t slots,
                                                uint32_t replicas_min) {
  if (loads.empty() || replicas_min == 0 || uint64_t{replicas_min} * loads.size() > slots) {
    return make_error(ErrorCode::kInvalidArgument,
                      "placement: {} slots for {} experts of at least {} replicas each", slots,
                      loads.size(), replicas_min);
  }
  std::vector<size_t> ascending(loads.size());
  std::iota(ascending.begin(), ascending.end(), size_t{0});
  std::stable_sort(ascending.begin(), ascending.end(),
                   [&](size_t a, size_t b) { return loads[a] < loads[b]; });
  Uint128 load_left = 0;
  for (const uint64_t load : loads) load_left += load;
  uint32_t slots_left = slots;
  std::vector<uint32_t> replicas(loads.size());
  for (size_t i = 0; i < ascending.size(); ++i) {
    const uint64_t load = loads[ascending[i]];
    const auto share = load_left == 0
                           ? static_cast<uint32_t>(slots_left / (ascending.size() - i))
                           : static_cast<uint32_t>(Uint128{load} * slots_left / load_left);
    const uint32_t given = std::max(share, replicas_min);
    replicas[ascending[i]] = given;
    slots_left -= given;
    load_left -= load;
  }
  return replicas;
}

}  // namespace moetrain
