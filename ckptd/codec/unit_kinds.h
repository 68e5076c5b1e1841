// Units of a run that are alike: their names differ in numbers only.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "formats/unit.h"

namespace ckptd {

class UnitKinds {
 public:
  // At most limits::kUnitKindsMax kinds: what comes in beyond is the last one's.
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
