// NewestFragments: ranges and CRC32C of the fragments of each unit's newest version.
//
// A filter without reads of the catalog: most fragments in training have no earlier version with
// the same bytes, and this rules them out. All others are looked up and compared, so this index may
// be outdated. 24 bytes per fragment of units with several fragments. Loop thread.
#pragma once

#include <unordered_map>
#include <vector>

#include "formats/segment.h"

namespace ckptd {

class NewestFragments {
 public:
  struct Sum {
    uint64_t offset = 0;
    uint64_t length = 0;
    uint32_t crc32c = 0;
  };
  bool knows(ckpt::UnitId unit) const { return sums_.contains(unit); }
  // In any order.
  void set(ckpt::UnitId unit, std::vector<Sum> sums);
  void forget(ckpt::UnitId unit) { sums_.erase(unit); }
  // True if the unit's newest version has exactly this range with this CRC32C.
  bool may_have(const ckpt::ExtentFragment& fragment) const;

 private:
  std::unordered_map<ckpt::UnitId, std::vector<Sum>> sums_;  // each ascending by offset
};

}  // namespace ckptd
