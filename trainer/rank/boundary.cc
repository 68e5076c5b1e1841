#include "trainer/rank/boundary.h"

namespace moetrain {

std::vector<int64_t> to_values(const Boundary& boundary) {
  return {boundary.stop ? 1 : 0,
          boundary.daemon_absent ? 1 : 0,
          static_cast<int64_t>(boundary.failed_snapshot),
          static_cast<int64_t>(boundary.lost_snapshot),
          boundary.drain ? 1 : 0,
          boundary.joiners ? 1 : 0,
          boundary.retake ? 1 : 0};
}

Boundary boundary_from(std::span<const int64_t> values) {
  return {values[0] != 0,
          values[1] != 0,
          static_cast<uint64_t>(values[2]),
          static_cast<uint64_t>(values[3]),
          values[4] != 0,
          values[5] != 0,
          values[6] != 0};
}

}  // namespace moetrain
