// The record that the last epoch of a run is over: after a crash of the daemon nobody waits for its
// members then. Without it they are waited for, as those of any epoch. Pure.
#pragma once

#include <cstdint>
#include <optional>

#include "ckptd/group/group.h"
#include "formats/journal.h"

namespace ckptd {

// `left`: a member that has just left in good order, as it was before. nullopt: others may go on,
// or it had left before.
std::optional<ckpt::fb::RecordT> record_of_epoch_over(const Groups::Member& left,
                                                      const Groups& groups, uint64_t time_ns);

}  // namespace ckptd
