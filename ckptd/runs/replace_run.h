// A run without any commit so far is replaced if its owner registers other units, or another
// configuration, under its name: a failed first start must not block the name. Pure.
#pragma once

#include <string_view>
#include <vector>

#include "ckptd/catalog/catalog.h"
#include "formats/journal.h"

namespace ckptd {

// True if the run never had a listed commit and `uid` owns it. The caller checks that it is unused,
// with the conditions of `rm` (Administration::may_remove).
bool never_committed(const RunInfo& run, uint32_t uid);
// True if the trainer sends a configuration, and the run has another one.
bool differs(const RunInfo& run, std::string_view metadata);
// The error for a registration while the run cannot be replaced: `same` says how the units differ.
// kRunInUse if `unused` is a failed precondition, not a passing state of ckptd.
Status still_in_use(const Status& same, const Status& unused);

ckpt::fb::RecordT removal_of_replaced(const RunInfo& run, uint64_t time_ns);
// Rules and grants of the replaced run, for run number `to`.
std::vector<ckpt::fb::RecordT> kept_settings(const RunInfo& from, const ckpt::KeepRules& rules,
                                             ckpt::RunId to, uint64_t time_ns);

}  // namespace ckptd
