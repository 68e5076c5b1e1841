// Converts between the plain values of formats/ and their FlatBuffers counterparts.
#pragma once

#include "formats/base/hash.h"
#include "formats/base/result.h"
#include "formats/unit.h"
#include "formats/wire/records_generated.h"

namespace ckpt::wire {

inline fb::Hash to_fb(const base::Hash128& hash) { return {hash.low, hash.high}; }
inline base::Hash128 from_fb(const fb::Hash& hash) {
  return {.low = hash.low(), .high = hash.high()};
}

fb::UnitT to_fb(const UnitSpec& unit, UnitId id);
// Converts a unit from outside; validate(unit) holds for the result. The caller checks the id.
Result<UnitSpec> from_fb(const fb::UnitT& unit);

}  // namespace ckpt::wire
