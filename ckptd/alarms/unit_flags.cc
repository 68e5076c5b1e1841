#include "ckptd/alarms/unit_flags.h"

namespace ckptd {

using ckpt::ErrorCode;
using ckpt::make_error;

ckpt::Status UnitFlags::check(const ckpt::fb::RegisterUnitsT& message) {
  if (message.flags.empty()) return {};
  if (message.flags.size() != message.units.size()) {
    return make_error(ErrorCode::kInvalidArgument, "flags of {} units, but {} units",
                      message.flags.size(), message.units.size());
  }
  for (size_t i = 0; i < message.flags.size(); ++i) {
    if ((message.flags[i] & ~kConstant) == 0) continue;
    return make_error(ErrorCode::kInvalidArgument,
                      "unit {}: flags {:#x}, of which this ckptd knows only {:#x}",
                      message.units[i]->name, message.flags[i], kConstant);
  }
  return {};
}

void UnitFlags::note(const std::string& run, const ckpt::fb::RegisterUnitsT& message) {
  if (!message.flags.empty()) by_run_[run] = message.flags;
}

bool UnitFlags::constant(const std::string& run, ckpt::UnitId unit) const {
  const auto flags = by_run_.find(run);
  return flags != by_run_.end() && unit < flags->second.size() &&
         (flags->second[unit] & kConstant) != 0;
}

}  // namespace ckptd
