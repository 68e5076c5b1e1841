// A copy into memory that this process does not read again soon, with its checksum.
#pragma once

#include <cstdint>

#include "formats/base/bytes.h"

namespace ckpt::base {

// Copies `from` to `to` (same size, no overlap), and returns the CRC32C of `from`, continuing from
// `crc`. Like copy_crc32c(), but its stores bypass the caches: a cached store first reads the line
// that it overwrites, which costs half as much traffic again for data larger than the caches. On
// return, a thread or process that is told about the copy sees all of it. If `from` changes during
// the call, the checksum may match neither version of it, nor the copy: the caller must then check
// the copy.
uint32_t stream_crc32c(MutableByteView to, ByteView from, uint32_t crc = 0);

}  // namespace ckpt::base
