// diff: what changed between two views, and by how much.
#pragma once

#include "client/ctl/link.h"

namespace ckptctl {

// The daemon's document. Every changed unit gets `relative_norm`: ||b-a|| / ||a|| over its
// floating-point tensors. The norm is null if there is nothing to measure, or if the two runs have
// different tensors in the unit; `reason` then says why. Reads both versions of the changed units,
// in constant memory.
Result<Json> diff_document(Link& link, const std::string& from, const std::string& to,
                           bool with_norms);

}  // namespace ckptctl
