// The record that the last epoch of a run is over: after a crash of the daemon its members are then
// not awaited. Without the record ckptd awaits them. Pure.
#pragma once

#include <cstdint>
#include <optional>

#include "ckptd/group/group.h"
#include "formats/journal.h"

namespace ckptd {

// `left`: a member that has just left cleanly, in its previous state. nullopt: other members may
// continue, or this one had left before.
std::optional<ckpt::fb::RecordT> record_of_epoch_over(const Groups::Member& left,
                                                      const Groups& groups, uint64_t time_ns);

}  // namespace ckptd
