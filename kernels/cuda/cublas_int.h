// Sizes as cuBLAS takes them, in 32 bits.
#pragma once

#include <cstdint>
#include <limits>

#include "formats/base/assert.h"

namespace ckpt::kernels {

// 0 <= size <= INT_MAX.
inline int cublas_int(int64_t size) {
  CKPT_ASSERT(size >= 0 && size <= std::numeric_limits<int>::max());
  return static_cast<int>(size);
}

}  // namespace ckpt::kernels
