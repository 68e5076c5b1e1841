// Private to this folder: where a commit's units lie, checked against what the run has.
#pragma once

#include <map>
#include <vector>

#include "ckptd/catalog/catalog.h"

namespace ckptd {

// A record that those before it, or the run's units, speak against.
template <typename... Args>
ckpt::Error contradiction(fmt::format_string<Args...> format, Args&&... args) {
  return ckpt::make_error(ckpt::ErrorCode::kCorrupt, "journal record: {}",
                          fmt::format(format, std::forward<Args>(args)...));
}

// Fragments of a commit by unit, each unit's ascending and covering it exactly.
using PlacesByUnit = std::map<ckpt::UnitId, std::vector<FragmentPlace>>;
Result<PlacesByUnit> places_by_unit(const ckpt::fb::CommittedT& commit,
                                    const std::vector<ckpt::UnitSpec>& specs);

// The same of a record that need not have all of a unit: ascending, and no more is known of them.
Result<PlacesByUnit> places_of_fragments(const ckpt::fb::CommittedT& commit,
                                         const std::vector<ckpt::UnitSpec>& specs);
// Do they, ascending, cover the unit exactly?
Status check_coverage(const ckpt::UnitSpec& spec, const std::vector<FragmentPlace>& places);

// A full commit holds units [0, n): then n, else 0. Completeness needs to look at the rest only.
uint32_t leading_units(const CommitInfo& info);

// The whole unit's CRC from those of its fragments.
uint32_t unit_crc32c(const std::vector<FragmentPlace>& places);

}  // namespace ckptd
