// Bytes that look like training state, and bytes that look like nothing.
#pragma once

#include <cstring>
#include <random>
#include <vector>

#include "formats/base/bytes.h"

namespace ckptd {

// Small floats around zero: their exponents are much alike.
inline std::vector<std::byte> float_bytes(size_t bytes, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> weights(0, 0.02F);
  std::vector<float> floats(bytes / sizeof(float) + 1);
  for (float& one : floats) one = weights(random);
  std::vector<std::byte> result(bytes);
  std::memcpy(result.data(), floats.data(), bytes);
  return result;
}

inline std::vector<std::byte> noise_bytes(size_t bytes, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::byte> result(bytes);
  for (std::byte& byte : result) byte = static_cast<std::byte>(random());
  return result;
}

}  // namespace ckptd
