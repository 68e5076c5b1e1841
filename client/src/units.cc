#include "client/src/units.h"

#include <memory>

#include "client/src/session.h"
#include "formats/wire/convert.h"

namespace ckpt::lib {
fb::RegisterUnitsT to_wire(const std::vector<UnitSpec>& units, const std::string& metadata) {
  fb::RegisterUnitsT body;
  body.units.reserve(units.size());
  for (const UnitSpec& unit : units) {
    const auto id = static_cast<UnitId>(body.units.size());
    body.units.push_back(std::make_unique<fb::UnitT>(wire::to_fb(unit, id)));
  }
  body.metadata = metadata;
  return body;
}

Status Session::register_units(std::vector<UnitSpec> units, std::string metadata,
                               const Deadline& deadline) {
  for (const UnitSpec& unit : units) CKPT_TRY(validate(unit));
  CKPT_TRY(call(
      to_wire(units, metadata),
      {deadline, fmt::format("run {}: registering {} units", options_.run, units.size()), {}}));
  units_ = std::move(units);
  metadata_ = std::move(metadata);
  registered_ = true;
  return ok_status();
}

}  // namespace ckpt::lib
