// CRC32C by folding: 256 bytes at a time are multiplied, carry-less, to where the next 256 lie, and
// added to them, so that a remainder as long as one step is left of any length. On processors with
// AVX-512 and VPCLMULQDQ that is faster than memory is, and while it copies, too, since the bytes
// are in registers already.
//
// The algorithm: Gopal et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ
// Instruction", Intel, 2009.
#pragma once

#include <cstdint>

#include "formats/base/bytes.h"

namespace ckpt::base::crc32c_fold {

inline constexpr size_t kStepBytes = 256;
// A line of the caches: where fold_stream() wants its target to begin.
inline constexpr size_t kLineBytes = 64;

// True if this processor can, and the environment does not say CKPT_CRC32C=serial (to test and
// measure what other processors do). Where it is false nothing below may be called.
bool supported();

// What crc32c(from, crc) is, of whole steps, at least one.
uint32_t fold(ByteView from, uint32_t crc);
// The same of what is copied to `to`, which is as long: of the very bytes stored, whatever happens
// to `from` meanwhile.
uint32_t fold_copy(std::byte* to, ByteView from, uint32_t crc);
// The same with stores that pass the caches; `to` is at the beginning of a line. They are weakly
// ordered: whoever tells others of them fences first.
uint32_t fold_stream(std::byte* to, ByteView from, uint32_t crc);

}  // namespace ckpt::base::crc32c_fold
