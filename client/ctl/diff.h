// diff: what changed between two views, and by how much.
#pragma once

#include "client/ctl/link.h"

namespace ckptctl {

// The daemon's document, with `relative_norm` (||b-a|| / ||a|| over the unit's floating-point
// tensors) added to every changed unit; null where there is nothing to measure, or the views are of
// runs whose units have other tensors: `reason` says so. Reads both versions of the changed units,
// in constant memory.
Result<Json> diff_document(Link& link, const std::string& from, const std::string& to,
                           bool with_norms);

}  // namespace ckptctl
