// CodecChoice: the codec that the configuration asks for, or a trainer for one of its units.
#pragma once

#include <cstdint>
#include <string_view>

#include "formats/base/result.h"

namespace ckptd {

// kDelta: the XOR with an earlier version where that is smaller, else as kZstd.
enum class CodecChoice : uint8_t { kNone = 0, kZstd = 1, kDelta = 3 };

// kInvalidArgument lists the codecs, or says what to use instead of `auto`.
ckpt::Result<CodecChoice> parse_codec_choice(std::string_view text);

}  // namespace ckptd
