// Groups the units of a run into kinds: names of one kind differ only in numbers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "formats/unit.h"

namespace ckptd {

class UnitKinds {
 public:
  // At most limits::kUnitKindsMax kinds: the last kind takes all units beyond.
  explicit UnitKinds(const std::vector<ckpt::UnitSpec>& units);

  size_t size() const { return names_.size(); }
  uint32_t of(ckpt::UnitId unit) const { return kinds_.at(unit); }
  // "layers.*.experts.*.weights"
  const std::string& name(uint32_t kind) const { return names_.at(kind); }

 private:
  std::vector<uint8_t> kinds_;  // by unit
  std::vector<std::string> names_;
};

}  // namespace ckptd
