// Bytes for tests that must not be all zero and must be the same in every run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

namespace ckpt::test {

inline std::vector<std::byte> random_bytes(size_t size, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::byte> bytes(size);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

}  // namespace ckpt::test
