// CRC32C (Castagnoli, reflected polynomial 0x82f63b78), as in RFC 3720 appendix B.4:
// crc32c("123456789") == 0xe3069283.
#pragma once

#include <cstdint>

#include "formats/base/bytes.h"

namespace ckpt::base {

// CRC32C of `bytes`, continuing from `crc` (the CRC of what came before; 0 at the start).
// Folded if the processor supports it (crc32c_fold.h), else by its CRC instruction (ISA-L);
// crc32c_portable is the same in plain C++.
uint32_t crc32c(ByteView bytes, uint32_t crc = 0);
uint32_t crc32c_portable(ByteView bytes, uint32_t crc = 0);

// CRC of A||B from crc(A), crc(B) and |B|, in O(log |B|).
uint32_t crc32c_combine(uint32_t crc_a, uint32_t crc_b, uint64_t length_b);

// CRC of A followed by `zeros` zero bytes, from crc(A).
uint32_t crc32c_extend_zeros(uint32_t crc_a, uint64_t zeros);

// Copies `from` to `to` (same size, no overlap) and returns the CRC32C of the bytes copied, in one
// pass over memory. stream_copy.h is for more than the caches hold.
uint32_t copy_crc32c(MutableByteView to, ByteView from, uint32_t crc = 0);

}  // namespace ckpt::base
