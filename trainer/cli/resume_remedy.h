// Advice where --resume or `eval` names nothing: a run that does not exist, or has no commit.
#pragma once

#include <string>

#include "formats/base/result.h"

namespace moetrain {

// The next step after an error with this detail: words to append to its message. Empty unless the
// run does not exist or has no commit.
std::string resume_remedy(ckpt::ErrorDetail detail);

// The same for a command that only reads: empty unless the run does not exist.
std::string read_remedy(ckpt::ErrorDetail detail);

}  // namespace moetrain
