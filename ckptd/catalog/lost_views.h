// Tells a run whose views were lost to damage from one that has none yet: the first must never be
// started anew as if it had nothing.
#pragma once

#include <optional>

#include "ckptd/catalog/catalog.h"
#include "formats/base/result.h"

namespace ckptd {

// For a lineage (0: the current one) without a complete view. kCorrupt if its history has a damaged
// commit: names the newest one, why it is damaged, and what can be done. nullopt: nothing is
// damaged.
std::optional<ckpt::Error> lost_views(const Catalog& catalog, const RunInfo& run,
                                      ckpt::LineageId lineage);

}  // namespace ckptd
