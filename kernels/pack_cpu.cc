#include <cstring>

#include "formats/base/assert.h"
#include "formats/base/crc32c.h"
#include "kernels/pack_checks.h"

namespace ckpt::kernels {

void pack(std::span<const PackPiece> pieces, std::span<const PackRange> ranges, std::byte* buffer,
          uint32_t* crc) {
  CKPT_ASSERT(in_order(pieces) && in_order(ranges) && covered(pieces, ranges));
  for (const PackPiece& piece : pieces) {
    if (piece.bytes > 0) std::memcpy(buffer + piece.offset, piece.from, piece.bytes);
  }
  for (size_t i = 0; i < ranges.size(); ++i) {
    crc[i] = base::crc32c({buffer + ranges[i].offset, ranges[i].bytes});
  }
}

void unpack(std::span<const UnpackPiece> pieces, std::span<const PackRange> ranges,
            std::span<const uint32_t> expected, const std::byte* buffer, uint32_t* crc,
            uint32_t* mismatches) {
  CKPT_ASSERT(expected.size() == ranges.size());
  CKPT_ASSERT(in_order(pieces) && in_order(ranges) && covered(pieces, ranges));
  *mismatches = 0;
  size_t next = 0;  // the first piece that lies behind the ranges so far
  for (size_t i = 0; i < ranges.size(); ++i) {
    const PackRange& range = ranges[i];
    crc[i] = base::crc32c({buffer + range.offset, range.bytes});
    const bool good = crc[i] == expected[i];
    if (!good) ++*mismatches;
    for (; next < pieces.size() && pieces[next].offset < range.offset + range.bytes; ++next) {
      const UnpackPiece& piece = pieces[next];
      if (good && piece.bytes > 0) std::memcpy(piece.to, buffer + piece.offset, piece.bytes);
    }
  }
}

}  // namespace ckpt::kernels
