// Units as a caller in C gives them.
#pragma once

#include <ckpt/ckpt_units.h>

#include "formats/base/result.h"
#include "formats/unit.h"
#include "formats/wire/wire_generated.h"

namespace ckpt::lib {

Result<UnitSpec> unit_spec(const ckpt_unit& from);
// `codec` may hold whatever number a caller in C has written there.
Result<fb::UnitCodec> unit_codec(const UnitSpec& unit, const ckpt_codec* codec);
// A flag of a later header might mean something that this library cannot pass on.
Status check_flags(const UnitSpec& unit, uint32_t flags);

}  // namespace ckpt::lib
