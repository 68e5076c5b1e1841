// crc32c_serial() without ISA-L (the `gpu` preset): slower, and fast enough to check a GPU's
// results.
#include "formats/base/crc32c.h"
#include "formats/base/crc32c_serial.h"

namespace ckpt::base {

uint32_t crc32c_serial(ByteView bytes, uint32_t crc) { return crc32c_portable(bytes, crc); }

}  // namespace ckpt::base
