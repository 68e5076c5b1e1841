#include "client/src/units.h"

#include <memory>

#include "client/src/session.h"
#include "formats/base/counted.h"
#include "formats/wire/convert.h"

namespace ckpt::lib {
fb::RegisterUnitsT to_wire(const Registration& registration) {
  fb::RegisterUnitsT body;
  body.units.reserve(registration.units.size());
  for (const UnitSpec& unit : registration.units) {
    const auto id = static_cast<UnitId>(body.units.size());
    body.units.push_back(std::make_unique<fb::UnitT>(wire::to_fb(unit, id)));
  }
  body.metadata = registration.metadata;
  body.codecs = registration.codecs;
  body.flags = registration.flags;
  return body;
}

Status Session::register_units(Registration registration, const Deadline& deadline) {
  for (const UnitSpec& unit : registration.units) CKPT_TRY(validate(unit));
  CKPT_TRY(
      call(to_wire(registration), {deadline,
                                   fmt::format("run {}: registering {}", options_.run,
                                               base::counted(registration.units.size(), "unit")),
                                   {}}));
  // Without flags, the earlier flags stay valid. A restarted daemon must get them again.
  if (registration.flags.empty() && registration_.flags.size() == registration.units.size()) {
    registration.flags = std::move(registration_.flags);
  }
  registration_ = std::move(registration);
  run_units_.registered(registration_.units);
  registered_ = true;
  return ok_status();
}

}  // namespace ckpt::lib
