// The arithmetic under CRC32C: polynomials over GF(2) modulo the Castagnoli polynomial. Everything
// is constexpr and plain, so that device code can use it, too.
//
// A CRC is a polynomial of degree < 32, stored reflected: bit 31 is x^0, bit 0 is x^31. A raw state
// (before the inversion at the end) that meets a word w of 32 bits becomes (state ^ w) * x^32.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace ckpt::base::crc32c_polynomial {

// P without its x^32 term.
inline constexpr uint32_t kPolynomial = 0x82f63b78;
inline constexpr uint32_t kOne = 1u << 31;

// a * x mod P, and the way back: P ends in 1, so x has an inverse.
constexpr uint32_t times_x(uint32_t a) { return (a >> 1) ^ (kPolynomial & (0u - (a & 1u))); }
constexpr uint32_t divided_by_x(uint32_t a) {
  return (a & kOne) != 0 ? (a ^ kPolynomial) << 1 | 1 : a << 1;
}

// a * b mod P. Without branches: the bits of a CRC cannot be predicted.
constexpr uint32_t multiply(uint32_t a, uint32_t b) {
  uint32_t product = 0;
  for (int power = 31; power >= 0; --power) {
    product ^= b & (0u - ((a >> power) & 1u));
    b = times_x(b);
  }
  return product;
}

// powers()[k] = x^(2^k) mod P. A length of 64 bits in bytes is one of 67 bits in bits.
constexpr std::array<uint32_t, 67> powers() {
  std::array<uint32_t, 67> powers{};
  powers[0] = times_x(kOne);
  for (size_t k = 1; k < powers.size(); ++k) powers[k] = multiply(powers[k - 1], powers[k - 1]);
  return powers;
}
inline constexpr std::array<uint32_t, 67> kPowers = powers();

// x^(8 * bytes) mod P: the factor of a raw state when `bytes` zero bytes are appended.
constexpr uint32_t shift_by_bytes(uint64_t bytes) {
  uint32_t shift = kOne;
  for (size_t k = 3; bytes != 0; ++k, bytes >>= 1) {
    if ((bytes & 1) == 0) continue;
    shift = shift == kOne ? kPowers[k] : multiply(shift, kPowers[k]);
  }
  return shift;
}

}  // namespace ckpt::base::crc32c_polynomial
