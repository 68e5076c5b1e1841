// What the operator asked for: `codec` of the configuration.
#pragma once

#include <cstdint>
#include <string_view>

#include "formats/base/result.h"

namespace ckptd {

enum class CodecChoice : uint8_t { kNone = 0, kZstd = 1 };

// kInvalidArgument lists what there is.
ckpt::Result<CodecChoice> parse_codec_choice(std::string_view text);

}  // namespace ckptd
