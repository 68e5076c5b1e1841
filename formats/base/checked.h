// Checked arithmetic on sizes that come from outside (files, sockets, command lines).
#pragma once

#include <concepts>
#include <cstdint>
#include <limits>
#include <optional>

namespace ckpt::base {

template <std::unsigned_integral T>
[[nodiscard]] constexpr std::optional<T> checked_add(T a, T b) {
  T sum;
  if (__builtin_add_overflow(a, b, &sum)) return std::nullopt;
  return sum;
}

template <std::unsigned_integral T>
[[nodiscard]] constexpr std::optional<T> checked_mul(T a, T b) {
  T product;
  if (__builtin_mul_overflow(a, b, &product)) return std::nullopt;
  return product;
}

// True if [offset, offset + length) lies inside [0, size), without overflow.
[[nodiscard]] constexpr bool range_fits(uint64_t offset, uint64_t length, uint64_t size) {
  return offset <= size && length <= size - offset;
}

// `alignment` is a power of two. Aligning up saturates at the largest aligned value.
[[nodiscard]] constexpr uint64_t align_down(uint64_t value, uint64_t alignment) {
  return value & ~(alignment - 1);
}
[[nodiscard]] constexpr uint64_t align_up(uint64_t value, uint64_t alignment) {
  const uint64_t largest = align_down(std::numeric_limits<uint64_t>::max(), alignment);
  return value > largest ? largest : align_down(value + alignment - 1, alignment);
}
[[nodiscard]] constexpr bool is_aligned(uint64_t value, uint64_t alignment) {
  return (value & (alignment - 1)) == 0;
}

}  // namespace ckpt::base
