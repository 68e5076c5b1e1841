// DaemonCounters: events that belong to no module of the daemon, since its start.
#pragma once

#include <cstdint>

namespace ckptd {

struct DaemonCounters {
  uint64_t arenas_adopted = 0;
  uint64_t slabs_taken_back = 0;      // at startup, from a keeper
  uint64_t slabs_not_taken_back = 0;  // likewise: failed a check
  uint64_t protocol_errors = 0;
};

}  // namespace ckptd
