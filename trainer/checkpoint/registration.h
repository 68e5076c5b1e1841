// Registration: a model's units as the client wants them, and how much arena a rank needs.
#pragma once

#include <ckpt/client.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "formats/base/result.h"
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

// The remedies in the flags of moetrain, which ckptd does not know.
inline constexpr std::string_view kResumeOrRename =
    "--resume latest continues that run, another --run begins a new one";

// The error of a join that was to start the run from nothing. It names the remedy if the run has
// commits; any other error stays as ckptd words it.
ckpt::Error start_refused(const std::string& run, const ckpt::Error& error);

// The error of a registration. A run of another model is bad usage; the error names the remedy for
// the run, or for the job that still uses it. Any other error stays as ckptd words it.
ckpt::Error registration_refused(const std::string& run, const ckpt::Error& error);

// The remedy for a rank of a run with --on-loss continue whose arena ckptd has no room for: an
// arena of `restart_bytes` is enough with restart. Empty for other errors, and if restart needs as
// much.
std::string restart_remedy(const ckpt::Error& error, uint64_t arena_bytes, uint64_t restart_bytes);

}  // namespace moetrain
