// Between the plain values of formats/ and their FlatBuffers counterparts.
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
// A unit as it came from outside; validate(unit) holds for what is returned. The id is the caller's
// to check.
Result<UnitSpec> from_fb(const fb::UnitT& unit);

}  // namespace ckpt::wire
