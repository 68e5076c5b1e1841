// SlabEncoder: encodes the payload of a sealed slab, piece by piece, into the daemon's memory.
//
// A trainer may still write into the shared slab, so each piece is copied first, and only the copy
// is used. Its CRC32C contributes to the checksum, which must match the sealed one. Its encoded
// bytes are decoded again at once. A piece that does not get smaller, or does not decode to the
// same bytes, is stored raw. If bytes of an earlier version are given for a piece, and the XOR with
// them is smaller by a margin, the XOR is encoded instead. Pure; runs one step at a time, on any
// thread.
#pragma once

#include <memory>
#include <vector>

#include "ckptd/codec/base_source.h"
#include "ckptd/codec/codec_choice.h"
#include "ckptd/codec/pieces.h"
#include "ckptd/codec/zstd_codec.h"
#include "formats/blob.h"
#include "formats/segment.h"

namespace ckptd {

using UnitSpecList = std::shared_ptr<const std::vector<ckpt::UnitSpec>>;

// Units of a run, and which of them to encode. The others are stored raw.
struct UnitsToEncode {
  UnitSpecList units;
  std::vector<bool> chosen;  // by unit; empty: all of them
  std::vector<bool> deltas;  // by unit: pieces may be deltas; implies chosen
  bool any_deltas = false;

  // Blobs are stored raw.
  bool has(ckpt::UnitId unit) const {
    return !ckpt::is_blob(unit) && (chosen.empty() || chosen.at(unit));
  }
  bool may_be_delta(ckpt::UnitId unit) const {
    return !ckpt::is_blob(unit) && any_deltas && (deltas.empty() || deltas.at(unit));
  }
};
using EncodePlan = std::shared_ptr<const UnitsToEncode>;
EncodePlan encode_all(UnitSpecList units, bool deltas = false);
// By the choice for each unit. Null: every unit is stored as it is.
EncodePlan encode_chosen(UnitSpecList units, const std::vector<CodecChoice>& choices);

class SlabEncoder {
 public:
  // `fragments` of units in the plan, ascending in the payload. All arguments outlive the encoder.
  SlabEncoder(ByteView payload, const std::vector<ckpt::ExtentFragment>& fragments,
              EncodePlan plan);
  // Encodes the next pieces, about this many bytes in total. `out` is the same at each step, with
  // room for all fragments raw. `bases`: for any of the pieces. kCorrupt: a fragment does not match
  // its checksum.
  Status step(uint64_t bytes, MutableByteView out, const BasePieces& bases = {});
  // Ranges of the next step's pieces that may become deltas.
  std::vector<ckpt::UnitRange> next_ranges(uint64_t bytes) const;
  bool done() const { return fragment_ == from_.size(); }

  // Once done: the fragments in `out`, in order without gaps, and their total size.
  const std::vector<ckpt::ExtentFragment>& fragments() const { return to_; }
  uint64_t stored_bytes() const { return used_; }
  // True if any fragment is encoded, or was cut so that the next version may have deltas to it.
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

  size_t fragment_ = 0;        // in from_
  std::vector<Piece> pieces_;  // of that fragment
  size_t piece_ = 0;
  uint32_t crc32c_ = 0;  // of the fragment's pieces so far
  std::vector<ckpt::ExtentFragment> to_;
  uint64_t used_ = 0;
  bool any_ = false;
};

}  // namespace ckptd
