// Limits that the process inherited (ulimit): raised where that is ours to do, refused where the
// daemon could not work below them.
#pragma once

#include <cstdint>

#include "formats/base/result.h"

namespace ckptd {

// A large snapshot has many segments open until its commit; the usual soft limit is for programs
// that use select(). Raises it to the hard limit.
void allow_open_files();

// kResourceExhausted if files may not become as large as a segment: every write of a snapshot would
// fail as on a full disk.
ckpt::Status check_file_size_limit(uint64_t segment_bytes);

}  // namespace ckptd
