// Private to this folder: where a commit's units lie, checked against the run's unit specs.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "ckptd/catalog/catalog.h"

namespace ckptd {

// Error for a record that contradicts earlier records or the run's units.
template <typename... Args>
ckpt::Error contradiction(fmt::format_string<Args...> format, Args&&... args) {
  return ckpt::make_error(ckpt::ErrorCode::kCorrupt, "journal record: {}",
                          fmt::format(format, std::forward<Args>(args)...));
}

// Fragments of a commit by unit, each unit's ascending and covering it exactly.
using PlacesByUnit = std::map<ckpt::UnitId, std::vector<FragmentPlace>>;
Result<PlacesByUnit> places_by_unit(const ckpt::fb::CommittedT& commit,
                                    const std::vector<ckpt::UnitSpec>& specs);

// The place of one fragment, validated on its own, without its neighbors in the unit.
Result<FragmentPlace> place_of(const ckpt::fb::CommittedT& commit,
                               const ckpt::fb::Fragment& fragment,
                               const ckpt::fb::Encoded& encoding,
                               const std::optional<ckpt::fb::Base>& base);

// The same for a record that may cover units in part: fragments ascending, coverage not checked.
Result<PlacesByUnit> places_of_fragments(const ckpt::fb::CommittedT& commit,
                                         const std::vector<ckpt::UnitSpec>& specs);
// Checks that the fragments, ascending, cover the unit exactly.
Status check_coverage(const ckpt::UnitSpec& spec, const std::vector<FragmentPlace>& places);

// Returns n if a full commit holds units [0, n), else 0. Completeness needs to check only the rest.
uint32_t leading_units(const CommitInfo& info);

// The whole unit's CRC from those of its fragments.
uint32_t unit_crc32c(const std::vector<FragmentPlace>& places);

}  // namespace ckptd
