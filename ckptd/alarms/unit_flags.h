// UnitFlags: the flags that trainers gave to their runs' units when they registered them.
//
// They live as long as the daemon: a trainer registers again with the next one before it commits.
// Used by the loop only.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "formats/base/ids.h"
#include "formats/base/result.h"
#include "formats/wire/wire_generated.h"

namespace ckptd {

class UnitFlags {
 public:
  // CKPT_UNIT_CONSTANT of ckpt.h: the unit's bytes may stay the same from save to save.
  static constexpr uint32_t kConstant = 1;

  // Fails if the flags are not one for each unit, or one is not known.
  static ckpt::Status check(const ckpt::fb::RegisterUnitsT& message);

  // Takes the flags of a registration that passed check(). One without flags changes nothing.
  void note(const std::string& run, const ckpt::fb::RegisterUnitsT& message);
  void forget(const std::string& run) { by_run_.erase(run); }

  bool constant(const std::string& run, ckpt::UnitId unit) const;

 private:
  std::map<std::string, std::vector<uint32_t>> by_run_;
};

}  // namespace ckptd
