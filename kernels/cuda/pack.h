// Several neighbours in memory, moved in one access: up to 16 bytes, what a thread can load at
// once.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/bf16.h"

namespace ckpt::kernels {

inline constexpr size_t kAccessBytes = 16;

template <typename T, int kCount>
struct alignas(std::min(kAccessBytes, sizeof(T) * kCount)) Pack {
  T at[kCount];
};

// `from` and `to` are aligned as can_pack() says.
template <int kCount, typename T>
CKPT_HOST_DEVICE inline Pack<T, kCount> load(const T* from) {
  return *reinterpret_cast<const Pack<T, kCount>*>(from);
}
template <int kCount, typename T>
CKPT_HOST_DEVICE inline void store(T* to, const Pack<T, kCount>& values) {
  *reinterpret_cast<Pack<T, kCount>*>(to) = values;
}

// Whether arrays that start here can be moved in packs of kCount.
template <int kCount, typename... T>
bool can_pack(const T*... arrays) {
  return ((reinterpret_cast<uintptr_t>(arrays) % alignof(Pack<T, kCount>) == 0) && ...);
}

}  // namespace ckpt::kernels
