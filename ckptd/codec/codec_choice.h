// How units are to lie on the disk: what the operator asked for (`codec` of the configuration), or
// a trainer of single units.
#pragma once

#include <cstdint>
#include <string_view>

#include "formats/base/result.h"

namespace ckptd {

// kAuto: encoded where that makes snapshots durable sooner (encode_choice.h), else as it is.
// kDelta: as kZstd, and where an earlier version makes it smaller still the XOR with that.
enum class CodecChoice : uint8_t { kNone = 0, kZstd = 1, kAuto = 2, kDelta = 3 };

// kInvalidArgument lists what there is.
ckpt::Result<CodecChoice> parse_codec_choice(std::string_view text);

}  // namespace ckptd
