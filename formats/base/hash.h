// 128-bit content hash (XXH3) for plan and schema agreement and for the journal's chain.
// Detects mistakes and damage; it is not a defence against someone who forges data.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <string>

#include "formats/base/bytes.h"

namespace ckpt::base {

struct Hash128 {
  uint64_t low = 0;
  uint64_t high = 0;
  auto operator<=>(const Hash128&) const = default;
};
static_assert(sizeof(Hash128) == 16);

Hash128 hash128(ByteView bytes, uint64_t seed = 0);

// 32 lower-case hexadecimal digits, high half first.
std::string to_hex(const Hash128& hash);

}  // namespace ckpt::base
