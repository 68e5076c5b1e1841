// Byte planes: the first bytes of all elements, then the second bytes, and so on. Exponents are
// then adjacent, which compresses better.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/queue.h"

namespace ckpt::kernels {

// to[plane * count + i] = from[i * element_bytes + plane], and back. element_bytes is 2, 4 or 8;
// from and to hold count * element_bytes bytes and may not overlap. Any alignment; fast on a GPU if
// both are aligned to 16 bytes and count is a multiple of 4.
void split_byte_planes(int64_t count, int element_bytes, const std::byte* from, std::byte* to);
void join_byte_planes(int64_t count, int element_bytes, const std::byte* from, std::byte* to);

void split_byte_planes(CudaQueue& queue, int64_t count, int element_bytes, const std::byte* from,
                       std::byte* to);
void join_byte_planes(CudaQueue& queue, int64_t count, int element_bytes, const std::byte* from,
                      std::byte* to);

}  // namespace ckpt::kernels
