// Bytes of a file that every rank of a run reads, and reads again when it is started anew.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "formats/base/result.h"

namespace moetrain {

// Appends the file's bytes to `bytes`, whatever size it claims to have. kInvalidArgument if it
// cannot be read, is not a regular file (a pipe would be empty the next time), or `bytes` would
// exceed bytes_max; the message says why and does not name the path.
ckpt::Status append_regular_file(const std::string& path, uint64_t bytes_max,
                                 std::vector<uint8_t>& bytes);

}  // namespace moetrain
