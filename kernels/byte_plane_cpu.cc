#include "kernels/byte_plane.h"

namespace ckpt::kernels {

void split_byte_planes(int64_t count, int element_bytes, const std::byte* from, std::byte* to) {
  for (int plane = 0; plane < element_bytes; ++plane) {
    for (int64_t i = 0; i < count; ++i) to[plane * count + i] = from[i * element_bytes + plane];
  }
}

void join_byte_planes(int64_t count, int element_bytes, const std::byte* from, std::byte* to) {
  for (int plane = 0; plane < element_bytes; ++plane) {
    for (int64_t i = 0; i < count; ++i) to[i * element_bytes + plane] = from[plane * count + i];
  }
}

}  // namespace ckpt::kernels
