// Units in the form that the daemon registers.
#pragma once

#include <string>
#include <vector>

#include "formats/unit.h"
#include "formats/wire/wire_generated.h"

namespace ckpt::lib {

// A trainer's registration of its run's units; ids are positions in the list.
struct Registration {
  std::vector<UnitSpec> units;
  std::vector<fb::UnitCodec> codecs;  // one for each unit, or none
  std::vector<uint32_t> flags;        // one for each unit, or none
  std::string metadata;
};

// The message that registers them.
fb::RegisterUnitsT to_wire(const Registration& registration);

}  // namespace ckpt::lib
