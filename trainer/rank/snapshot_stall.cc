#include "trainer/rank/snapshot_stall.h"

#include <algorithm>

namespace moetrain {

void SnapshotStall::add(const Snapshotter::Waits& before, const Snapshotter::Waits& now,
                        uint64_t silence_ms) {
  auto silent_ms = static_cast<double>(silence_ms);
  const auto heard_ms = [&silent_ms](double waited_ms) {
    const double heard = std::max(0.0, waited_ms - silent_ms);
    silent_ms -= waited_ms - heard;
    return heard;
  };
  waits.slabs_ms += heard_ms(now.slabs_ms - before.slabs_ms);
  waits.room_ms += heard_ms(now.room_ms - before.room_ms);
  waits.open = now.open;
}

}  // namespace moetrain
