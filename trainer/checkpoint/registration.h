// Registration: a model's units as the client wants them, and how much arena a rank needs.
#pragma once

#include <ckpt/client.hpp>
#include <string>
#include <vector>

#include "trainer/checkpoint/units.h"

namespace moetrain {

std::vector<ckpt::client::UnitInfo> registration(const std::vector<StateUnit>& units);

struct ArenaSize {
  uint64_t slab_bytes = 0;
  uint64_t arena_bytes = 0;
};
// For a rank that contributes `share_bytes` to each snapshot: three snapshots at once (one being
// filled, two being written) and the windows of a restore. With experts that stay in memory, room
// for all that are newest there, and their own slabs in each snapshot.
ArenaSize arena_size(uint64_t share_bytes, bool memory_level = false);

}  // namespace moetrain
