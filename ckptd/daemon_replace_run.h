// A run that has never had a commit is replaced when its owner registers other units, or another
// configuration, under its name: a first start that failed must not keep the name for ever. Pure.
#pragma once

#include <string_view>
#include <vector>

#include "ckptd/catalog/catalog.h"
#include "formats/journal.h"

namespace ckptd {

// True if nothing of the run is listed and `uid` owns it. Whether somebody uses it is for the
// conditions of `rm` to say (Daemon::Impl::may_remove).
bool never_committed(const RunInfo& run, uint32_t uid);
// True if the trainer gives a configuration, and the run has another one.
bool differs(const RunInfo& run, std::string_view metadata);
// The answer to who registers while the run cannot be replaced: `same` says how the units differ.
Status still_in_use(const Status& same, const Status& unused);

ckpt::fb::RecordT removal_of_replaced(const RunInfo& run, uint64_t time_ns);
// The rules and grants of the run that goes, for run number `to`.
std::vector<ckpt::fb::RecordT> kept_settings(const RunInfo& from, const ckpt::KeepRules& rules,
                                             ckpt::RunId to, uint64_t time_ns);

}  // namespace ckptd
