// Encoded fragments of a window: from memory of the daemon's into their places in the slab.
#include <algorithm>
#include <chrono>

#include "ckptd/codec/zstd_codec.h"
#include "ckptd/restore/restore_impl.h"
#include "formats/base/crc32c.h"

namespace ckptd {
namespace {

// The whole fragment, checked before a byte of it is believed, and after. `raw`: into which.
Status decode(ZstdDecoder& decoder, const FragmentPlace& place, ByteView stored,
              std::vector<std::byte>& raw) {
  if (ckpt::base::crc32c(stored) != place.encoded_crc32c) {
    return ckpt::make_error(ckpt::ErrorCode::kCorrupt, "{} of its encoded bytes", kMismatch);
  }
  raw.resize(place.length);
  CKPT_TRY(decoder.decode(static_cast<Codec>(place.codec), stored, raw));
  if (ckpt::base::crc32c(raw) == place.crc32c) return {};
  return ckpt::make_error(ckpt::ErrorCode::kCorrupt, kMismatch);
}

}  // namespace

void decode_window(FillingWindow& window, DecodeMeter* meter) {
  if (window.encoded.empty()) return;
  const auto began = std::chrono::steady_clock::now();
  uint64_t bytes = 0;
  ZstdDecoder decoder;
  std::vector<std::byte> raw;
  for (RestoreSlot& slot : window.slots) {
    if (!slot.encoded || !slot.status.ok()) continue;
    const FragmentPlace& place = slot.slice.fragment->place;
    const ByteView run = window.encoded.at(*slot.encoded).bytes();
    const uint64_t at = place.payload_offset - window.runs[*slot.encoded].file_begin;
    slot.status = decode(decoder, place, run.subspan(at, place.encoded_bytes), raw);
    if (!slot.status.ok()) continue;
    const auto from = raw.begin() + static_cast<ptrdiff_t>(slot.slice.offset);
    std::copy_n(from, slot.slice.length,
                window.bytes.begin() + static_cast<ptrdiff_t>(slot.slab_offset));
    bytes += place.length;
  }
  window.encoded.clear();
  if (meter == nullptr) return;
  const auto took = std::chrono::steady_clock::now() - began;
  meter->raw_bytes += bytes;
  meter->nanoseconds += static_cast<uint64_t>(std::chrono::nanoseconds(took).count());
}

}  // namespace ckptd
