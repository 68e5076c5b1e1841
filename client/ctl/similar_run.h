// Suggests the run that a mistyped name probably means.
#pragma once

#include <string>
#include <vector>

#include "client/ctl/link.h"

namespace ckptctl {

// "run tin: no such run; did you mean `tiny`?", if one of `names` is near; else the error
// unchanged.
ckpt::Error with_similar_name(const ckpt::Error& error, const std::vector<std::string>& names);
// Same, with the runs of this daemon.
ckpt::Error with_similar_run(Link& link, const ckpt::Error& error);

}  // namespace ckptctl
