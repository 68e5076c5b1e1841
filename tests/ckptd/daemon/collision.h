// Other bytes with the same CRC32C.
#pragma once

#include <array>
#include <cstddef>

namespace ckptd::testing {

// The polynomial of CRC32C itself, in the order of its bits. A CRC is linear: XOR with this
// polynomial, at any place, gives other bytes of the same length with the same CRC32C.
inline constexpr std::array kCollision = {std::byte{0xf1}, std::byte{0x76}, std::byte{0xec},
                                          std::byte{0x05}, std::byte{0x01}};

// Byte `offset` of colliding bytes, which differ from offset `at` on. `byte` is the original one.
inline std::byte collide(std::byte byte, size_t offset, size_t at) {
  if (offset < at || offset - at >= kCollision.size()) return byte;
  return byte ^ kCollision[offset - at];
}

}  // namespace ckptd::testing
