// Inherited limits of the process (ulimit) that the daemon needs.
#pragma once

#include <cstdint>

#include "formats/base/result.h"

namespace ckptd {

// kResourceExhausted if files may not become as large as a segment: every write of a snapshot would
// fail as on a full disk.
ckpt::Status check_file_size_limit(uint64_t segment_bytes);

// kResourceExhausted if the daemon may have fewer files open than an empty store and one client
// need: its parts would fail one by one, and connections would wait without an answer. A store in
// use needs more.
ckpt::Status check_open_files_limit();

}  // namespace ckptd
