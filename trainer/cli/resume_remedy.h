// Advice where --resume names nothing: a run that does not exist, or has no commit.
#pragma once

#include <string>

#include "formats/base/result.h"

namespace moetrain {

// The next step after an error with this detail: words to append to its message. Empty unless the
// run does not exist or has no commit.
std::string resume_remedy(ckpt::ErrorDetail detail);

}  // namespace moetrain
