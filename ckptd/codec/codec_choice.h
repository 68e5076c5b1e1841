// The encoding of units on disk, chosen by the operator (`codec` of the configuration), or by a
// trainer for single units.
#pragma once

#include <cstdint>
#include <string_view>

#include "formats/base/result.h"

namespace ckptd {

// kDelta: like kZstd, or the XOR with an earlier version if that is even smaller.
enum class CodecChoice : uint8_t { kNone = 0, kZstd = 1, kDelta = 3 };

// kInvalidArgument lists the valid names, or says what to use instead of `auto`.
ckpt::Result<CodecChoice> parse_codec_choice(std::string_view text);

}  // namespace ckptd
