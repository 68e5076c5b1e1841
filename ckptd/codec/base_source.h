// Bytes of earlier versions, for pieces that may become deltas.
#pragma once

#include <functional>
#include <vector>

#include "formats/plan.h"

namespace ckptd {

struct BasePiece {
  ckpt::UnitRange range;
  uint64_t stored_bytes = 0;     // that it takes on the disk
  uint32_t crc32c = 0;           // of the bytes
  std::vector<std::byte> bytes;  // as they were staged
};
using BasePieces = std::vector<BasePiece>;

// Of one slab. Whoever has it may drop it only when no read is under way.
class BaseSource {
 public:
  virtual ~BaseSource() = default;
  // Those of the ranges that have a base which could be read, and in time. on_done runs from the
  // loop, never within this call; one read at a time.
  virtual void read(const std::vector<ckpt::UnitRange>& ranges,
                    std::function<void(BasePieces)> on_done) = 0;
};

}  // namespace ckptd
