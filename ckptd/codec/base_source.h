// Source of earlier versions' bytes, for pieces that may become deltas.
#pragma once

#include <functional>
#include <vector>

#include "formats/plan.h"

namespace ckptd {

struct BasePiece {
  ckpt::UnitRange range;
  uint64_t stored_bytes = 0;     // its size on disk
  uint32_t crc32c = 0;           // of `bytes`
  std::vector<std::byte> bytes;  // as they were staged
};
using BasePieces = std::vector<BasePiece>;

// Bases for one slab. The owner may drop it only when no read is in progress.
class BaseSource {
 public:
  virtual ~BaseSource() = default;
  // Reads the bases of these ranges; leaves out ranges without a base, and bases that were not read
  // in time. on_done runs from the loop, never within this call; one read at a time.
  virtual void read(const std::vector<ckpt::UnitRange>& ranges,
                    std::function<void(BasePieces)> on_done) = 0;
};

}  // namespace ckptd
