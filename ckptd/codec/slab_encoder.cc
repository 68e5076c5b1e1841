#include "ckptd/codec/slab_encoder.h"

#include <algorithm>

#include "ckptd/limits.h"
#include "formats/base/assert.h"
#include "formats/base/checked.h"
#include "formats/base/crc32c.h"

namespace ckptd {

namespace {

const BasePiece* base_of_piece(const BasePieces& bases, ckpt::UnitId unit, const Piece& piece) {
  const auto found = std::find_if(bases.begin(), bases.end(), [&](const BasePiece& base) {
    return base.range.unit == unit && base.range.offset == piece.offset &&
           base.range.length == piece.length;
  });
  return found == bases.end() ? nullptr : &*found;
}

}  // namespace

EncodePlan encode_all(UnitSpecList units, bool deltas) {
  return std::make_shared<const UnitsToEncode>(UnitsToEncode{std::move(units), {}, {}, deltas});
}

EncodePlan encode_chosen(UnitSpecList units, const std::vector<CodecChoice>& choices) {
  CKPT_ASSERT(choices.size() == units->size());
  UnitsToEncode plan{.units = std::move(units), .chosen = {}, .deltas = {}};
  plan.chosen.reserve(choices.size());
  plan.deltas.reserve(choices.size());
  bool any = false;
  for (const CodecChoice choice : choices) {
    plan.chosen.push_back(choice != CodecChoice::kNone);
    plan.deltas.push_back(choice == CodecChoice::kDelta);
    any = any || plan.chosen.back();
    plan.any_deltas = plan.any_deltas || plan.deltas.back();
  }
  return any ? std::make_shared<const UnitsToEncode>(std::move(plan)) : nullptr;
}

SlabEncoder::SlabEncoder(ByteView payload, const std::vector<ckpt::ExtentFragment>& fragments,
                         EncodePlan plan)
    : payload_(payload), from_(fragments), plan_(std::move(plan)), encoder_(limits::kZstdLevel) {
  if (!done()) next_fragment();
}

std::vector<Piece> SlabEncoder::pieces_of(const ckpt::ExtentFragment& fragment) const {
  static const ckpt::UnitSpec without_tensors;
  std::vector<Piece> pieces =
      cut_pieces(ckpt::is_blob(fragment.unit) ? without_tensors : plan_->units->at(fragment.unit),
                 {.unit = fragment.unit, .offset = fragment.offset, .length = fragment.length});
  if (!plan_->has(fragment.unit)) {
    for (Piece& piece : pieces) piece.codec = Codec::kNone;
  }
  return pieces;
}

void SlabEncoder::next_fragment() {
  pieces_ = pieces_of(from_[fragment_]);
  piece_ = 0;
  crc32c_ = 0;
}

std::vector<ckpt::UnitRange> SlabEncoder::next_ranges(uint64_t bytes) const {
  std::vector<ckpt::UnitRange> ranges;
  uint64_t taken = 0;
  for (size_t at = fragment_; at < from_.size() && taken < bytes; ++at) {
    const ckpt::UnitId unit = from_[at].unit;
    const std::vector<Piece> pieces = at == fragment_ ? pieces_ : pieces_of(from_[at]);
    for (size_t i = at == fragment_ ? piece_ : 0; i < pieces.size() && taken < bytes; ++i) {
      taken += pieces[i].length;
      if (!plan_->may_be_delta(unit)) continue;
      ranges.push_back({.unit = unit, .offset = pieces[i].offset, .length = pieces[i].length});
    }
  }
  return ranges;
}

Status SlabEncoder::step(uint64_t bytes, MutableByteView out, const BasePieces& bases) {
  for (uint64_t taken = 0; taken < bytes && !done();) {
    taken += pieces_[piece_].length;
    take(pieces_[piece_], out, bases);
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

void SlabEncoder::take(const Piece& piece, MutableByteView out, const BasePieces& bases) {
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
  const BasePiece* base = base_of_piece(bases, fragment.unit, piece);
  size_t encoded = base == nullptr ? 0 : encode_delta(piece, crc32c, *base, to);
  Codec codec = piece.codec;
  if (encoded > 0) {
    codec = ckpt::delta_codec(piece.codec);
    stored.base_crc32c = base->crc32c;
  } else {
    encoded = encode(piece, copy_, crc32c, to);
  }
  if (encoded > 0) {
    stored.codec = static_cast<uint32_t>(codec);
    stored.encoded_bytes = encoded;
    stored.encoded_crc32c = ckpt::base::crc32c(to.first(encoded));
  } else {
    std::copy(copy_.begin(), copy_.end(), to.begin());
  }
  any_ = any_ || encoded > 0 || plan_->may_be_delta(fragment.unit);
  append(stored);
}

// Returns 0 if the delta is not small enough. The base's stored size estimates that of the piece;
// encoding a small sample of the piece first shows whether the rest is worth the time.
size_t SlabEncoder::encode_delta(const Piece& piece, uint32_t crc32c, const BasePiece& base,
                                 MutableByteView out) {
  if (piece.codec == Codec::kNone || piece.length < limits::kEncodedBytesMin) return 0;
  CKPT_ASSERT(base.bytes.size() == piece.length);
  const Codec codec = ckpt::delta_codec(piece.codec);
  delta_.assign(copy_.begin(), copy_.end());
  xor_bytes(delta_, base.bytes);
  const uint64_t most = base.stored_bytes - base.stored_bytes / limits::kDeltaGain;
  if (piece.length >= 4 * limits::kDeltaSampleBytes) {
    const ByteView sample = ByteView(delta_).subspan(ckpt::base::align_down(piece.length / 2, 8),
                                                     limits::kDeltaSampleBytes);
    const uint64_t sample_bytes_max = most * sample.size() / piece.length;
    if (!encoder_.encode(codec, sample, out, sample_bytes_max)) return 0;
  }
  const auto encoded = encoder_.encode(codec, delta_, out, most);
  if (!encoded) return 0;
  decoded_.resize(piece.length);
  if (!decoder_.decode(codec, out.first(*encoded), decoded_).ok()) return 0;
  xor_bytes(decoded_, base.bytes);
  return ckpt::base::crc32c(decoded_) == crc32c ? *encoded : 0;
}

// 0: store the piece raw.
size_t SlabEncoder::encode(const Piece& piece, ByteView raw, uint32_t crc32c, MutableByteView out) {
  if (piece.codec == Codec::kNone || raw.size() < limits::kEncodedBytesMin) return 0;
  const auto encoded = encoder_.encode(piece.codec, raw, out);
  if (!encoded) return 0;
  decoded_.resize(raw.size());
  const Status back = decoder_.decode(piece.codec, out.first(*encoded), decoded_);
  return back.ok() && ckpt::base::crc32c(decoded_) == crc32c ? *encoded : 0;
}

// Joins raw pieces to one fragment again, unless they may be bases: a base is its own fragment.
void SlabEncoder::append(ckpt::ExtentFragment fragment) {
  used_ += fragment.stored_bytes();
  const bool joins = piece_ > 0 && !plan_->may_be_delta(fragment.unit);
  if (joins && !to_.empty() && fragment.codec == 0 && to_.back().codec == 0) {
    ckpt::ExtentFragment& last = to_.back();
    last.crc32c = ckpt::base::crc32c_combine(last.crc32c, fragment.crc32c, fragment.length);
    last.length += fragment.length;
    return;
  }
  to_.push_back(fragment);
}

}  // namespace ckptd
