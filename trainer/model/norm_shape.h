// The shape of every RMSNorm of the model: over the hidden width, one row for each token.
#pragma once

#include "trainer/device/device.h"
#include "trainer/model/config.h"

namespace moetrain {

inline kernels::RmsNormShape norm_shape(const ModelConfig& config, int64_t tokens) {
  return {tokens, config.hidden, static_cast<float>(config.rms_eps)};
}

}  // namespace moetrain
