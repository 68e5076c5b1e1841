// The limit of open files (RLIMIT_NOFILE, ulimit -n) for a model of many files.
#pragma once

#include <cstddef>
#include <string>

#include "formats/base/result.h"

namespace ckptctl {

// Raises the soft limit as needed for `files` more open files. kResourceExhausted, with both
// numbers, if the hard limit is too low. `folder`: the folder of the files, for the message.
ckpt::Status allow_open_files(const std::string& folder, size_t files);

}  // namespace ckptctl
