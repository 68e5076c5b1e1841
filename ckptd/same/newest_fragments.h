// NewestFragments: how the newest versions of a run's units are cut, and the CRC32C of each piece.
//
// Says of a fragment, without asking the catalog, that no version has its bytes, which is what is
// true of nearly all in training. What it does not deny is looked up and compared, so that it may
// be out of date. 24 bytes for each piece of units that are saved in several. Loop thread.
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
  // Has the newest version of its unit exactly this range, with this CRC32C?
  bool may_have(const ckpt::ExtentFragment& fragment) const;

 private:
  std::unordered_map<ckpt::UnitId, std::vector<Sum>> sums_;  // each ascending by offset
};

}  // namespace ckptd
