#include "formats/base/hash.h"

#include <fmt/format.h>

// Compiled in, so that libckpt needs no libxxhash.so where it runs.
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace ckpt::base {

Hash128 hash128(ByteView bytes, uint64_t seed) {
  const XXH128_hash_t hash = XXH3_128bits_withSeed(bytes.data(), bytes.size(), seed);
  return {.low = hash.low64, .high = hash.high64};
}

std::string to_hex(const Hash128& hash) {
  return fmt::format("{:016x}{:016x}", hash.high, hash.low);
}

}  // namespace ckpt::base
