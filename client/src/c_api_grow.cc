#include <ckpt/ckpt_grow.h>

#include <algorithm>

#include "client/src/c_api.h"
#include "client/src/c_api_units.h"

namespace ckpt::lib {
namespace {

Status grow(Session& session, const ckpt_grow_options& raw) {
  CKPT_TRY(session.group().check_alive(session.options().run));
  if (raw.count > 0 && (raw.units == nullptr || raw.numbers == nullptr)) {
    return missing("units or numbers");
  }
  std::vector<GrowUnit> units;
  units.reserve(raw.count);
  for (size_t i = 0; i < raw.count; ++i) {
    GrowUnit unit;
    CKPT_ASSIGN(unit.spec, unit_spec(raw.units[i]));
    if (raw.codecs != nullptr) {
      CKPT_ASSIGN(unit.codec, unit_codec(unit.spec, &raw.codecs[i]));
    }
    if (raw.flags != nullptr) unit.flags = raw.flags[i];
    CKPT_TRY(check_flags(unit.spec, unit.flags));
    units.push_back(std::move(unit));
  }
  auto numbers = session.run_units().grow(units, session.growth_in_flight());
  if (!numbers.ok()) {
    return reworded(numbers.error(),
                    fmt::format("run {}: {}", session.options().run, numbers.error().message));
  }
  std::ranges::copy(*numbers, raw.numbers);
  return ok_status();
}

}  // namespace
}  // namespace ckpt::lib

using namespace ckpt;       // NOLINT(google-build-using-namespace): this file is the ABI's other
using namespace ckpt::lib;  // NOLINT(google-build-using-namespace): side, nothing includes it

ckpt_status ckpt_grow(ckpt_session* session, const ckpt_grow_options* options) {
  return run_call(*session->session, [&]() -> Status {
    if (options == nullptr) return missing("options");
    CKPT_TRY(check_size(options, sizeof(ckpt_grow_options)));
    return grow(*session->session, copy_options(options));
  });
}
