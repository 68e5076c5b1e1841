// Resume points: the view from which a new epoch continues. Reads the catalog only.
#pragma once

#include <optional>

#include "ckptd/catalog/catalog.h"
#include "ckptd/group/group.h"
#include "formats/base/result.h"

namespace ckptd {

// nullopt: the run begins from nothing. kFailedPrecondition: `start` for a run that has commits, or
// a view that is not complete. kNotFound: no view to resume from. kCorrupt: damage left none.
// Messages name views that work.
ckpt::Result<std::optional<ViewPoint>> choose_resume(const Catalog& catalog, const RunInfo& run,
                                                     const JoinRequest& resume);

}  // namespace ckptd
