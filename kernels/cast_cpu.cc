#include "kernels/cast.h"

namespace ckpt::kernels {

void cast(int64_t count, const float* from, Bf16* to) {
  for (int64_t i = 0; i < count; ++i) to[i] = to_bf16(from[i]);
}

void cast(int64_t count, const Bf16* from, float* to) {
  for (int64_t i = 0; i < count; ++i) to[i] = to_float(from[i]);
}

}  // namespace ckpt::kernels
