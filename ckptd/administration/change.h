// RequestedChange: a change of history that a client requested.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "formats/base/ids.h"
#include "formats/wire/wire_generated.h"

namespace ckptd {

struct RequestedChange {
  ckpt::SessionId session = 0;
  uint64_t request = 0;
  std::string verb;
  std::string args;
  // Instead of a verb: units of a run that replaces a run of the same name.
  std::shared_ptr<const ckpt::fb::RegisterUnitsT> registration = nullptr;
};

}  // namespace ckptd
