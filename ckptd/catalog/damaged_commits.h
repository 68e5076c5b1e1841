// Which commits need bytes that are known to be damaged. Reads the catalog, and no data.
#pragma once

#include <cstddef>
#include <vector>

#include "ckptd/catalog/catalog.h"
#include "ckptd/catalog/scrub_state.h"

namespace ckptd {

// True if the damage is of this run.
bool is_of_run(const ScrubDamage& damage, const RunInfo& run);

// The commits of the run whose version of the damaged unit needs the damaged bytes, as bytes of
// their own or as the base of a delta. The bytes may have moved, and a commit of this name may be
// another one by now: the version says what the commit needs. Where the place of the damage is not
// known, or the unit, the commit in which it was found is listed while it is there. Empty: no
// commit needs the bytes. `holders_left`: a budget of commits that share the extent, to be looked
// at; 0 afterwards means that some may be left out.
std::vector<ViewPoint> commits_that_need(const Catalog& catalog, const ScrubDamage& damage,
                                         ckpt::RunId run, const std::vector<ckpt::UnitSpec>& units,
                                         size_t& holders_left);

}  // namespace ckptd
