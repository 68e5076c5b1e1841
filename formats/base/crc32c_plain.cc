// crc32c_serial() where ISA-L is not (the `gpu` preset): slower, and fast enough to check what a
// GPU did.
#include "formats/base/crc32c.h"
#include "formats/base/crc32c_serial.h"

namespace ckpt::base {

uint32_t crc32c_serial(ByteView bytes, uint32_t crc) { return crc32c_portable(bytes, crc); }

}  // namespace ckpt::base
