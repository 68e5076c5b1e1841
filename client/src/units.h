// Units as the daemon wants to hear of them.
#pragma once

#include <string>
#include <vector>

#include "formats/unit.h"
#include "formats/wire/wire_generated.h"

namespace ckpt::lib {

// The message that registers `units`; ids are positions in the list.
fb::RegisterUnitsT to_wire(const std::vector<UnitSpec>& units, const std::string& metadata);

}  // namespace ckpt::lib
