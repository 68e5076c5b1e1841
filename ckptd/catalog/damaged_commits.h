// Finds the commits that need bytes known to be damaged. Reads the catalog, and no data.
#pragma once

#include <cstddef>
#include <vector>

#include "ckptd/catalog/catalog.h"
#include "ckptd/catalog/scrub_state.h"

namespace ckptd {

// True if the damage is of this run.
bool is_of_run(const ScrubDamage& damage, const RunInfo& run);

// The commits of the run whose version of the damaged unit needs the damaged bytes, directly or as
// the base of a delta. The bytes may have moved, and another commit may have replaced this one, so
// the version decides what the commit needs. If the place of the damage or the unit is unknown,
// lists the commit in which the damage was found, while that commit exists. Empty: no commit needs
// the bytes. `holders_left`: budget of commits that share the extent and may be examined; 0 after
// the call means that the list may be incomplete.
std::vector<ViewPoint> dependent_commits(const Catalog& catalog, const ScrubDamage& damage,
                                         ckpt::RunId run, const std::vector<ckpt::UnitSpec>& units,
                                         size_t& holders_left);

}  // namespace ckptd
