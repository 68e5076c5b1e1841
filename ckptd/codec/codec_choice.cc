#include "ckptd/codec/codec_choice.h"

namespace ckptd {

ckpt::Result<CodecChoice> parse_codec_choice(std::string_view text) {
  if (text == "none") return CodecChoice::kNone;
  if (text == "zstd") return CodecChoice::kZstd;
  if (text == "auto") return CodecChoice::kAuto;
  if (text == "delta") return CodecChoice::kDelta;
  return ckpt::make_error(ckpt::ErrorCode::kInvalidArgument, "codec {}: none, zstd, delta or auto",
                          text);
}

}  // namespace ckptd
