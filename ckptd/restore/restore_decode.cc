// Decodes the encoded fragments of a window from the daemon's memory into the slab.
#include <algorithm>
#include <chrono>

#include "ckptd/restore/place_bytes.h"
#include "ckptd/restore/restore_impl.h"

namespace ckptd {
namespace {

ByteView stored_in(const FillingWindow& window, size_t run, const Address& at, uint64_t bytes) {
  return window.encoded.at(run).bytes().subspan(at.offset - window.runs[run].begin, bytes);
}

// Buffers for one fragment, reused for the next.
struct Decoding {
  ZstdDecoder decoder;
  std::vector<std::byte> base;
  std::vector<std::byte> raw;
};

void decode_slot(RestoreSlot& slot, const FillingWindow& window, Decoding& decoding) {
  const FragmentPlace& stored = slot.slice.fragment->stored;
  if (slot.base) {
    const FragmentPlace base = base_of(stored);
    slot.status = decode_place(
        decoding.decoder, base,
        stored_in(window, slot.base->run, slot.base->at, base.stored_bytes()), {}, decoding.base);
    slot.base_failed = !slot.status.ok();
    if (slot.base_failed) return;
  }
  slot.status =
      decode_place(decoding.decoder, stored,
                   stored_in(window, *slot.encoded, slot.place.address, stored.stored_bytes()),
                   decoding.base, decoding.raw);
  if (!slot.status.ok()) return;
  const auto from = decoding.raw.begin() + static_cast<ptrdiff_t>(slot.slice.offset);
  std::copy_n(from, slot.slice.length,
              window.bytes.begin() + static_cast<ptrdiff_t>(slot.slab_offset));
}

}  // namespace

void decode_window(FillingWindow& window, DecodeMeter* meter) {
  if (window.encoded.empty()) return;
  const auto began = std::chrono::steady_clock::now();
  uint64_t bytes = 0;
  Decoding decoding;
  for (RestoreSlot& slot : window.slots) {
    if (!slot.encoded || !slot.status.ok()) continue;
    decode_slot(slot, window, decoding);
    if (slot.status.ok()) bytes += slot.slice.fragment->stored.length;
  }
  window.encoded.clear();
  if (meter == nullptr) return;
  const auto took = std::chrono::steady_clock::now() - began;
  meter->raw_bytes += bytes;
  meter->nanoseconds += static_cast<uint64_t>(std::chrono::nanoseconds(took).count());
}

}  // namespace ckptd
