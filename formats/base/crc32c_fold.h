// CRC32C by folding. A carry-less multiplication moves 256 bytes to the position of the next 256
// bytes and adds them there, so an input of any length shrinks to one step of 256 bytes. On
// processors with AVX-512 and VPCLMULQDQ this is faster than memory. The copying variants are as
// fast, because the bytes are already in registers.
//
// The algorithm: Gopal et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ
// Instruction", Intel, 2009.
#pragma once

#include <cstdint>

#include "formats/base/bytes.h"

namespace ckpt::base::crc32c_fold {

inline constexpr size_t kStepBytes = 256;
// Size of a cache line; fold_stream() needs a target aligned to this.
inline constexpr size_t kLineBytes = 64;

// True if this processor supports folding and the environment does not set CKPT_CRC32C=serial
// (which tests and measures the path of other processors). If false, call nothing below.
bool supported();

// Returns crc32c(from, crc). `from` is a whole number of steps, at least one.
uint32_t fold(ByteView from, uint32_t crc);
// Copies to `to`, which is as long, and returns the CRC32C of the bytes stored, even if `from`
// changes meanwhile.
uint32_t fold_copy(std::byte* to, ByteView from, uint32_t crc);
// Same, with stores that bypass the caches; `to` is aligned to a cache line. The stores are weakly
// ordered: fence before another thread or process is told about them.
uint32_t fold_stream(std::byte* to, ByteView from, uint32_t crc);

}  // namespace ckpt::base::crc32c_fold
