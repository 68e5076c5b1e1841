// The view that a message of a reader names. Pure, except for reads of the catalog.
#pragma once

#include "ckptd/catalog/catalog.h"
#include "formats/wire/wire_generated.h"

namespace ckptd {

// Resolves step, tag, `latest` or `newest`. A damaged commit may be named: a restore then uses
// older versions. Call it inside History::read().
Result<ViewPoint> wanted_view(const Catalog& catalog, const RunInfo& run,
                              const ckpt::fb::OpenRestoreT& message);

}  // namespace ckptd
