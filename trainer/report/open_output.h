// open_output(): opens a file that a user named for output, and never waits for a pipe's reader.
#pragma once

#include <string>
#include <string_view>

#include "formats/base/result.h"
#include "formats/base/unique_fd.h"

namespace moetrain::report {

// Creates the file, or empties it. A pipe that no program reads is refused; writes to a pipe wait
// for room, as usual. kIo, naming the path, or `name` if it is not empty.
ckpt::Result<ckpt::base::UniqueFd> open_output(const std::string& path, std::string_view name = {});

}  // namespace moetrain::report
