// UnitFlags: the flags that trainers gave to units at registration.
//
// Flags live as long as the daemon: a trainer registers again with a new daemon before it commits.
// Used only by the loop.
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

  // Fails unless there is one known flag value per unit.
  static ckpt::Status check(const ckpt::fb::RegisterUnitsT& message);

  // Takes the flags of a registration that passed check(). Without flags it changes nothing.
  void note(const std::string& run, const ckpt::fb::RegisterUnitsT& message);
  void forget(const std::string& run) { by_run_.erase(run); }

  bool constant(const std::string& run, ckpt::UnitId unit) const;

 private:
  std::map<std::string, std::vector<uint32_t>> by_run_;
};

}  // namespace ckptd
