// Tells a run whose views were lost to damage from one that has none yet: the first must never be
// started anew as if it had nothing.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "ckptd/catalog/catalog.h"
#include "formats/base/result.h"

namespace ckptd {

// For a lineage (0: the current one) without a complete view. kCorrupt if its history has a damaged
// commit, be it removed: names the newest one, why it is damaged, and what can be done. nullopt:
// nothing is damaged, or users have removed all commits of the run.
std::optional<ckpt::Error> lost_views(const Catalog& catalog, const RunInfo& run,
                                      ckpt::LineageId lineage);

// For a unit that a view lacks: "unit U: its version of RUN~L@S is damaged: WHY; REMEDY". Empty:
// the view's history has no damaged version of it.
std::string damage_of_unit(const Catalog& catalog, const RunInfo& run, ViewPoint point,
                           ckpt::UnitId unit);

// "put segments/000001.seg back and restart ckptd": the remedy for this reason of a damage.
std::string put_back_remedy(std::string_view reason);

}  // namespace ckptd
