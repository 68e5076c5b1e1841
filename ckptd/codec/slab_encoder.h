// SlabEncoder: the payload of a sealed slab, encoded piece by piece into memory of the daemon's.
//
// The slab is shared with a trainer that may still write into it, so each piece is copied out first
// and everything is made of the copy: its CRC32C, which together must be what the trainer sealed,
// and its encoded bytes, which are decoded again at once. A piece that does not get smaller, or
// does not come back as it was, is stored as it is. Where the bytes of an earlier version are given
// for a piece, and the XOR with them takes less than they do by a margin, that is encoded instead.
// Pure; runs a step at a time, on any one thread.
#pragma once

#include <memory>
#include <vector>

#include "ckptd/codec/base_source.h"
#include "ckptd/codec/codec_choice.h"
#include "ckptd/codec/pieces.h"
#include "ckptd/codec/zstd_codec.h"
#include "formats/segment.h"

namespace ckptd {

using UnitSpecList = std::shared_ptr<const std::vector<ckpt::UnitSpec>>;

// Units of a run, and which of them are encoded. The others are stored as they are.
struct UnitsToEncode {
  UnitSpecList units;
  std::vector<bool> chosen;  // by unit; empty: all of them
  std::vector<bool> deltas;  // likewise, those of which pieces may be deltas: chosen, too
  bool any_deltas = false;

  bool has(ckpt::UnitId unit) const { return chosen.empty() || chosen.at(unit); }
  bool may_be_delta(ckpt::UnitId unit) const {
    return any_deltas && (deltas.empty() || deltas.at(unit));
  }
};
using EncodePlan = std::shared_ptr<const UnitsToEncode>;
EncodePlan encode_all(UnitSpecList units, bool deltas = false);
// By the choice for each unit. Null: every unit is stored as it is.
EncodePlan encode_chosen(UnitSpecList units, const std::vector<CodecChoice>& choices);

class SlabEncoder {
 public:
  // `fragments` of units of the plan, ascending in the payload. All of it outlives the encoder.
  SlabEncoder(ByteView payload, const std::vector<ckpt::ExtentFragment>& fragments,
              EncodePlan plan);
  // Goes on with pieces of about so many bytes together. `out` is the same at each step, with room
  // for all fragments as they are. `bases`: of any of them. kCorrupt: a fragment does not match its
  // checksum.
  Status step(uint64_t bytes, MutableByteView out, const BasePieces& bases = {});
  // The pieces that such a step goes on with, as far as they may be deltas.
  std::vector<ckpt::UnitRange> next_ranges(uint64_t bytes) const;
  bool done() const { return fragment_ == from_.size(); }

  // Once done: what lies in `out`, one after the other, and how many bytes it is.
  const std::vector<ckpt::ExtentFragment>& fragments() const { return to_; }
  uint64_t stored_bytes() const { return used_; }
  // Is any of them encoded, or cut so that the next version may have deltas to it?
  bool any() const { return any_; }

 private:
  std::vector<Piece> pieces_of(const ckpt::ExtentFragment& fragment) const;
  void next_fragment();
  void take(const Piece& piece, MutableByteView out, const BasePieces& bases);
  size_t encode_delta(const Piece& piece, uint32_t crc32c, const BasePiece& base,
                      MutableByteView out);
  size_t encode(const Piece& piece, ByteView raw, uint32_t crc32c, MutableByteView out);
  void append(ckpt::ExtentFragment fragment);

  const ByteView payload_;
  const std::vector<ckpt::ExtentFragment>& from_;
  const EncodePlan plan_;
  ZstdEncoder encoder_;
  ZstdDecoder decoder_;
  std::vector<std::byte> copy_;
  std::vector<std::byte> delta_;
  std::vector<std::byte> decoded_;

  size_t fragment_ = 0;        // of from_
  std::vector<Piece> pieces_;  // of that one
  size_t piece_ = 0;
  uint32_t crc32c_ = 0;  // of its pieces so far
  std::vector<ckpt::ExtentFragment> to_;
  uint64_t used_ = 0;
  bool any_ = false;
};

}  // namespace ckptd
