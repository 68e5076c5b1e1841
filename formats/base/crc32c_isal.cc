#include <isa-l/crc.h>

#include <algorithm>

#include "formats/base/crc32c_serial.h"

namespace ckpt::base {

uint32_t crc32c_serial(ByteView bytes, uint32_t crc) {
  // ISA-L takes the length as an int, works on the raw (inverted) state, and its signature lacks a
  // const; it does not write.
  constexpr size_t kCallBytesMax = 1u << 30;
  uint32_t state = ~crc;
  while (!bytes.empty()) {
    const size_t now = std::min(bytes.size(), kCallBytesMax);
    auto* from = reinterpret_cast<unsigned char*>(const_cast<std::byte*>(bytes.data()));
    state = crc32_iscsi(from, static_cast<int>(now), state);
    bytes = bytes.subspan(now);
  }
  return ~state;
}

}  // namespace ckpt::base
