#include "formats/base/bytes.h"

namespace ckpt::base {

bool all_zero(ByteView bytes) {
  if (bytes.empty()) return true;
  if (bytes.front() != std::byte{0}) return false;
  // A buffer whose first byte is zero is all zero if it equals itself shifted by one.
  return std::memcmp(bytes.data(), bytes.data() + 1, bytes.size() - 1) == 0;
}

}  // namespace ckpt::base
