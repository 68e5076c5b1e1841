// Views of bytes, and little-endian loads and stores for everything on disk and in shared memory.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <type_traits>

namespace ckpt {

using ByteView = std::span<const std::byte>;
using MutableByteView = std::span<std::byte>;

inline ByteView as_bytes(std::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}
inline std::string_view as_text(ByteView bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

namespace base {

// Every format of ours is little-endian; so is every machine it runs on.
static_assert(std::endian::native == std::endian::little);

// Copies a trivially copyable struct out of or into unaligned bytes. Precondition: it fits.
template <typename T>
T load(const std::byte* from) {
  static_assert(std::is_trivially_copyable_v<T>);
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}
template <typename T>
void store(std::byte* to, const T& value) {
  static_assert(std::is_trivially_copyable_v<T>);
  std::memcpy(to, &value, sizeof(T));
}

// True if every byte is zero. Padding is zero and covered by a checksum in every format of ours.
bool all_zero(ByteView bytes);

}  // namespace base
}  // namespace ckpt
