// Private to this folder: the units of a run, as registrations and commits with a growth add them.
#pragma once

#include <memory>
#include <vector>

#include "ckptd/catalog/catalog_impl.h"
#include "ckptd/catalog/commit_places.h"

namespace ckptd {

// Takes the units of a record into the run. kCorrupt: one contradicts the run's list, or the base
// would continue behind grown units. Returns the id of the first unit that the run did not have;
// the size of its list if there is none.
Result<ckpt::UnitId> take_units(const std::vector<std::unique_ptr<ckpt::fb::UnitT>>& units,
                                bool grown, RunEntry& run);

// Takes the growth of a commit into the run of the change, and writes it. Done before anything that
// needs the specs of the commit's units.
Status take_growth(const ckpt::fb::CommittedT& commit, Change& change);
// kCorrupt: the commit does not contain all units that the run has from it, those from `known` on.
Status check_growth_contained(const ckpt::fb::CommittedT& commit, const PlacesByUnit& units,
                              size_t known, const UnitSpecs& specs);

}  // namespace ckptd
