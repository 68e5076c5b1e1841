// Checks of a registration: the units and metadata that a client sends. Pure.
#pragma once

#include <string>
#include <vector>

#include "formats/base/result.h"
#include "formats/unit.h"
#include "formats/wire/wire_generated.h"

namespace ckptd {

using ckpt::Result;
using ckpt::Status;

// Reads and checks the units that the client lists.
Result<std::vector<ckpt::UnitSpec>> read_units(const ckpt::fb::RegisterUnitsT& message);
// `given` may leave out units at the end of `known`, down to its first `base` ones.
// kFailedPrecondition, kUnitsDiffer: names the first unit that differs.
Status check_same_units(const std::vector<ckpt::UnitSpec>& known, size_t base,
                        const std::vector<ckpt::UnitSpec>& given);
// JSON within the limits of size and depth, or empty.
Status check_metadata(const std::string& metadata);

}  // namespace ckptd
