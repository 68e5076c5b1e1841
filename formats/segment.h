// Segments: append-only files of extents. The bytes of every snapshot.
//
//   segment file   := SegmentHeader (4096 bytes) extent*
//   extent         := header (whole 4096-byte blocks) payload (whole 4096-byte blocks)
//   extent header  := ExtentHeader fragment_count x ExtentFragment zero padding
//   payload        := the slab's content: fragments with zero gaps, zero padding to the block;
//                     or its fragments one after the other, some of them encoded
//
// Nothing ever searches a payload; bytes that the journal does not list are dead space. Headers
// repeat the journal's fields, so that a misdirected or lost write is found. Worked examples:
// docs/reference/formats.md.
#pragma once

#include <array>
#include <vector>

#include "formats/base/bytes.h"
#include "formats/base/hash.h"
#include "formats/base/ids.h"
#include "formats/base/result.h"

namespace ckpt {

inline constexpr uint32_t kSegmentFormatVersion = 1;
// Version of extent headers. 1: raw fragments only; 2: encoded fragments; 3: also deltas. The
// writer uses the lowest version that the fragments need.
inline constexpr uint32_t kExtentFormatVersion = 3;

struct SegmentHeader {
  base::Hash128 store;    // owning store: a file copied from elsewhere is refused
  SegmentId segment = 0;  // its own number: a renamed file is refused
  uint64_t bytes = 0;     // preallocated size
  uint64_t created_ns = 0;
};

// Writes the 4096-byte block / checks and reads it.
void encode_segment_header(const SegmentHeader& header, MutableByteView block);
Result<SegmentHeader> decode_segment_header(ByteView block);

// A byte range of a unit inside an extent's payload.
struct ExtentFragment {
  UnitId unit = 0;
  uint32_t codec = 0;           // a Codec of formats/codec.h; 0: stored as it is
  uint64_t offset = 0;          // in the unit
  uint64_t length = 0;          // raw bytes
  uint64_t payload_offset = 0;  // from the start of the payload
  uint32_t crc32c = 0;          // of the raw bytes
  uint32_t encoded_crc32c = 0;  // of the encoded bytes; without a codec zero, like the next field
  uint64_t encoded_bytes = 0;
  uint32_t base_crc32c = 0;  // deltas only: of the raw bytes of the base
  bool operator==(const ExtentFragment&) const = default;
  // Bytes in the payload and their CRC32C, encoded or raw.
  uint64_t stored_bytes() const { return codec == 0 ? length : encoded_bytes; }
  uint32_t stored_crc32c() const { return codec == 0 ? crc32c : encoded_crc32c; }
};

struct ExtentHeader {
  base::Hash128 store;
  SegmentId segment = 0;
  uint64_t offset = 0;  // of this header in the segment file
  SnapshotKey snapshot;
  Rank rank = 0;
  uint64_t sequence = 0;        // number of extents written by this store so far
  uint64_t payload_bytes = 0;   // before padding to the block
  uint32_t payload_crc32c = 0;  // of the whole padded payload
  std::vector<ExtentFragment> fragments;
  bool operator==(const ExtentHeader&) const = default;
};

// Whole blocks that a header with these fragments takes.
uint64_t extent_header_bytes(const std::vector<ExtentFragment>& fragments);
// Same, for a header whose fragments are all stored raw.
uint64_t extent_header_bytes(size_t raw_fragments);

// `out` has extent_header_bytes(header.fragments) bytes. Returns the header's CRC32C, which
// the journal records.
uint32_t encode_extent_header(const ExtentHeader& header, MutableByteView out);

// `bytes` starts at the header and has at least one block. kCorrupt names the mismatch;
// kInvalidArgument: the header is larger than `bytes`, but never larger than
// kExtentHeaderBytesMax; kVersionMismatch: a newer program wrote the header.
inline constexpr uint64_t kExtentHeaderBytesMax = 64ull << 20;
Result<ExtentHeader> decode_extent_header(ByteView bytes);

// CRC32C of a padded payload from the CRCs of its fragments and the zero gaps between them, without
// touching the bytes. Fragments must be ascending in payload_offset and disjoint (asserted).
uint32_t payload_crc32c(const std::vector<ExtentFragment>& fragments, uint64_t padded_bytes);

}  // namespace ckpt
