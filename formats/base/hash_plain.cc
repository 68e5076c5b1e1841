// hash128() without xxHash (the `gpu` preset). Its results differ from XXH3's, so they must not be
// stored or sent; they only separate the random sequences of initial weights.
#include <algorithm>
#include <bit>
#include <cstring>

#include "formats/base/hash.h"

namespace ckpt::base {

namespace {

// Steele et al., "Fast splittable pseudorandom number generators" (SplitMix64): every bit of the
// result depends on every bit of x.
uint64_t mixed(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

}  // namespace

Hash128 hash128(ByteView bytes, uint64_t seed) {
  constexpr uint64_t kOdd = 0x9e3779b97f4a7c15u;
  Hash128 hash{.low = mixed(seed + kOdd), .high = mixed(seed ^ bytes.size() * kOdd)};
  for (size_t at = 0; at < bytes.size(); at += sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, bytes.data() + at, std::min(sizeof word, bytes.size() - at));
    hash.low = mixed(hash.low ^ word) + kOdd;
    hash.high = mixed(hash.high + std::rotl(word, 32)) ^ hash.low;
  }
  return hash;
}

}  // namespace ckpt::base
