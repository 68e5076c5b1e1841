// ExpertSchedule: when sharded experts are restored and their gradients re-sharded. It never
// changes a result, only the time and the thread of an exchange.
#pragma once

#include <cstdint>

namespace moetrain {

inline constexpr uint32_t kPrefetchMax = 2;

struct ExpertSchedule {
  // Layers whose experts are restored ahead, once a layer's tokens have been exchanged: the
  // following ones in forward, the preceding ones in backward. At most kPrefetchMax.
  uint32_t prefetch = 2;
  // True: gradients of a layer are re-sharded under the backward of the layer before it, which
  // takes memory for gradients of a second layer. False: backward waits for them.
  bool delayed_reshard = true;

  // False: nothing runs beside the rank's thread, which needs no second communicator.
  bool overlaps() const { return prefetch > 0 || delayed_reshard; }
  bool operator==(const ExpertSchedule&) const = default;
};

}  // namespace moetrain
