#include "ckptd/restore/place_bytes.h"

#include "formats/base/crc32c.h"

namespace ckptd {

Status decode_place(ZstdDecoder& decoder, const FragmentPlace& place, ByteView stored,
                    ByteView base, std::vector<std::byte>& raw) {
  CKPT_ASSERT(stored.size() == place.stored_bytes());
  if (place.codec == 0) {
    raw.assign(stored.begin(), stored.end());
  } else {
    if (ckpt::base::crc32c(stored) != place.encoded_crc32c) {
      return ckpt::make_error(ckpt::ErrorCode::kCorrupt, "CRC32C mismatch of its encoded bytes");
    }
    raw.resize(place.length);
    CKPT_TRY(decoder.decode(static_cast<Codec>(place.codec), stored, raw));
  }
  if (place.base) xor_bytes(raw, base);
  if (ckpt::base::crc32c(raw) == place.crc32c) return {};
  return ckpt::make_error(ckpt::ErrorCode::kCorrupt, "CRC32C mismatch");
}

}  // namespace ckptd
