#include "ckptd/codec/codec_choice.h"

#include "formats/codec.h"

namespace ckptd {

ckpt::Result<CodecChoice> parse_codec_choice(std::string_view text) {
  if (text == "none") return CodecChoice::kNone;
  if (text == "zstd") return CodecChoice::kZstd;
  if (text == "delta") return CodecChoice::kDelta;
  if (text == "auto") {
    return ckpt::make_error(ckpt::ErrorCode::kInvalidArgument, "{}", ckpt::kAutoCodecRemoved);
  }
  return ckpt::make_error(ckpt::ErrorCode::kInvalidArgument, "codec {}: none, zstd or delta", text);
}

}  // namespace ckptd
