#include "ckptd/codec/slab_encoder.h"

#include <algorithm>

#include "ckptd/limits.h"
#include "formats/base/crc32c.h"

namespace ckptd {

EncodePlan encode_all(UnitSpecList units) {
  return std::make_shared<const UnitsToEncode>(UnitsToEncode{std::move(units), {}});
}

SlabEncoder::SlabEncoder(ByteView payload, const std::vector<ckpt::ExtentFragment>& fragments,
                         EncodePlan plan)
    : payload_(payload), from_(fragments), plan_(std::move(plan)), encoder_(limits::kZstdLevel) {
  if (!done()) next_fragment();
}

void SlabEncoder::next_fragment() {
  const ckpt::ExtentFragment& fragment = from_[fragment_];
  pieces_ =
      cut_pieces(plan_->units->at(fragment.unit),
                 {.unit = fragment.unit, .offset = fragment.offset, .length = fragment.length});
  if (!plan_->has(fragment.unit)) {
    for (Piece& piece : pieces_) piece.codec = Codec::kNone;
  }
  piece_ = 0;
  crc32c_ = 0;
}

Status SlabEncoder::step(uint64_t bytes, MutableByteView out) {
  for (uint64_t taken = 0; taken < bytes && !done();) {
    taken += pieces_[piece_].length;
    take(pieces_[piece_], out);
    if (++piece_ < pieces_.size()) continue;
    const ckpt::ExtentFragment& fragment = from_[fragment_];
    if (crc32c_ != fragment.crc32c) {
      return ckpt::make_error(
          ckpt::ErrorCode::kCorrupt,
          "unit {} bytes [{}, {}) have CRC32C {:08x}, sealed as {:08x} (written "
          "to after it was handed over, or never completely copied)",
          fragment.unit, fragment.offset, fragment.offset + fragment.length, crc32c_,
          fragment.crc32c);
    }
    ++fragment_;
    if (!done()) next_fragment();
  }
  return {};
}

void SlabEncoder::take(const Piece& piece, MutableByteView out) {
  const ckpt::ExtentFragment& fragment = from_[fragment_];
  const ByteView shared =
      payload_.subspan(fragment.payload_offset + (piece.offset - fragment.offset), piece.length);
  copy_.resize(piece.length);
  const uint32_t crc32c = ckpt::base::copy_crc32c(copy_, shared);
  crc32c_ = ckpt::base::crc32c_combine(crc32c_, crc32c, piece.length);
  ckpt::ExtentFragment stored{.unit = fragment.unit,
                              .codec = 0,
                              .offset = piece.offset,
                              .length = piece.length,
                              .payload_offset = used_,
                              .crc32c = crc32c};
  const MutableByteView to = out.subspan(used_, piece.length);
  if (const size_t encoded = encode(piece, copy_, crc32c, to); encoded > 0) {
    stored.codec = static_cast<uint32_t>(piece.codec);
    stored.encoded_bytes = encoded;
    stored.encoded_crc32c = ckpt::base::crc32c(to.first(encoded));
    any_ = true;
  } else {
    std::copy(copy_.begin(), copy_.end(), to.begin());
  }
  append(stored);
}

// 0: as it is.
size_t SlabEncoder::encode(const Piece& piece, ByteView raw, uint32_t crc32c, MutableByteView out) {
  if (piece.codec == Codec::kNone || raw.size() < limits::kEncodedBytesMin) return 0;
  const auto encoded = encoder_.encode(piece.codec, raw, out);
  if (!encoded) return 0;
  decoded_.resize(raw.size());
  const Status back = decoder_.decode(piece.codec, out.first(*encoded), decoded_);
  return back.ok() && ckpt::base::crc32c(decoded_) == crc32c ? *encoded : 0;
}

// What stays as it is stays in one fragment, too.
void SlabEncoder::append(ckpt::ExtentFragment fragment) {
  used_ += fragment.stored_bytes();
  if (!to_.empty() && fragment.codec == 0 && to_.back().codec == 0 && piece_ > 0) {
    ckpt::ExtentFragment& last = to_.back();
    last.crc32c = ckpt::base::crc32c_combine(last.crc32c, fragment.crc32c, fragment.length);
    last.length += fragment.length;
    return;
  }
  to_.push_back(fragment);
}

}  // namespace ckptd
