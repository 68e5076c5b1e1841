#include "formats/codec.h"

#include "formats/base/assert.h"

namespace ckpt {
namespace {

// Distance from a zstd codec to the delta codec of the same kind.
constexpr uint32_t kToDelta =
    static_cast<uint32_t>(Codec::kDeltaZstd) - static_cast<uint32_t>(Codec::kZstd);
static_assert(static_cast<uint32_t>(Codec::kZstdPlanes8) + kToDelta ==
              static_cast<uint32_t>(Codec::kDeltaZstdPlanes8));

}  // namespace

uint32_t plane_count(Codec codec) {
  switch (codec) {
    case Codec::kNone:
    case Codec::kZstd:
    case Codec::kDeltaZstd:
      return 1;
    case Codec::kZstdPlanes2:
    case Codec::kDeltaZstdPlanes2:
      return 2;
    case Codec::kZstdPlanes4:
    case Codec::kDeltaZstdPlanes4:
      return 4;
    case Codec::kZstdPlanes8:
    case Codec::kDeltaZstdPlanes8:
      return 8;
  }
  CKPT_ASSERT_MSG(false, "no such codec");
  return 1;
}

Codec zstd_codec(uint64_t element_bytes) {
  switch (element_bytes) {
    case 2:
      return Codec::kZstdPlanes2;
    case 4:
      return Codec::kZstdPlanes4;
    case 8:
      return Codec::kZstdPlanes8;
    default:
      return Codec::kZstd;
  }
}

bool is_delta(uint32_t codec) {
  return codec >= static_cast<uint32_t>(Codec::kDeltaZstd) && codec < kCodecCount;
}

Codec delta_codec(Codec codec) {
  CKPT_ASSERT(codec != Codec::kNone && !is_delta(static_cast<uint32_t>(codec)));
  return static_cast<Codec>(static_cast<uint32_t>(codec) + kToDelta);
}

Status check_encoding(uint32_t codec, uint64_t length, uint64_t encoded_bytes,
                      uint32_t encoded_crc32c) {
  if (codec >= kCodecCount) {
    return make_error(ErrorCode::kVersionMismatch, "unknown codec {}", codec);
  }
  if (codec == 0) {
    if (encoded_bytes == 0 && encoded_crc32c == 0) return {};
    return make_error(ErrorCode::kCorrupt, "{} encoded bytes, without a codec", encoded_bytes);
  }
  if (length > kEncodedFragmentBytesMax) {
    return make_error(ErrorCode::kCorrupt, "{} bytes are encoded in one piece, the most is {}",
                      length, kEncodedFragmentBytesMax);
  }
  // The writer never stores an encoding that is not smaller than its input.
  if (encoded_bytes == 0 || encoded_bytes >= length) {
    return make_error(ErrorCode::kCorrupt, "{} encoded bytes of {}", encoded_bytes, length);
  }
  return {};
}

}  // namespace ckpt
