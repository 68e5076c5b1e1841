// Inherited limits of the process (ulimit) that the daemon needs. The limit of open files is raised
// instead: formats/base/open_files.h.
#pragma once

#include <cstdint>

#include "formats/base/result.h"

namespace ckptd {

// kResourceExhausted if files may not become as large as a segment: every write of a snapshot would
// fail as on a full disk.
ckpt::Status check_file_size_limit(uint64_t segment_bytes);

}  // namespace ckptd
