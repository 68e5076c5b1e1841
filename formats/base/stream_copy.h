// A copy into memory that this process does not read again soon, with its checksum.
#pragma once

#include <cstdint>

#include "formats/base/bytes.h"

namespace ckpt::base {

// Copies `from` to `to` (same size, no overlap) and returns the CRC32C of `from`, continuing from
// `crc`. As copy_crc32c(), but past the caches: a store that goes through them reads first what it
// overwrites, and for more than fits into them that is half as much traffic again. When it returns,
// whoever is told sees all of it. Of a source that changes meanwhile the checksum may be of neither
// what it was nor what was copied: for whoever checks the copy afterwards.
uint32_t stream_crc32c(MutableByteView to, ByteView from, uint32_t crc = 0);

}  // namespace ckpt::base
