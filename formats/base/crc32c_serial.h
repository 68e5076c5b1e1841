// crc32c() of what is too short to be folded, and of everything where nothing can be.
#pragma once

#include <cstdint>

#include "formats/base/bytes.h"

namespace ckpt::base {

// ISA-L's, or the portable one: which is compiled in depends on the build.
uint32_t crc32c_serial(ByteView bytes, uint32_t crc);

}  // namespace ckpt::base
