// crc32c() of bytes that are too few to fold, and of all bytes on processors without folding.
#pragma once

#include <cstdint>

#include "formats/base/bytes.h"

namespace ckpt::base {

// Uses ISA-L or the portable version; the build decides which.
uint32_t crc32c_serial(ByteView bytes, uint32_t crc);

}  // namespace ckpt::base
