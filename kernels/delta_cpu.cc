#include "kernels/delta.h"

namespace ckpt::kernels {

void delta(int64_t bytes, const std::byte* a, const std::byte* b, std::byte* to) {
  for (int64_t i = 0; i < bytes; ++i) to[i] = a[i] ^ b[i];
}

}  // namespace ckpt::kernels
