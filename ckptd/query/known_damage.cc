#include "ckptd/query/known_damage.h"

#include <algorithm>

#include "ckptd/catalog/damaged_commits.h"
#include "ckptd/limits.h"

namespace ckptd {

KnownDamage::KnownDamage(const QueryContext& context, const RunInfo& run,
                         const std::vector<ckpt::UnitSpec>& specs) {
  size_t holders_left = limits::kDamageHoldersMax;
  for (const ScrubDamage& damage : context.damages) {
    if (!is_of_run(damage, run)) continue;
    const auto spec = std::ranges::find(specs, damage.unit, &ckpt::UnitSpec::name);
    if (spec == specs.end()) continue;
    const auto commits = dependent_commits(context.catalog, damage, run.id, specs, holders_left);
    const auto unit = static_cast<ckpt::UnitId>(spec - specs.begin());
    for (const ViewPoint& commit : commits) by_commit_[commit].try_emplace(unit, &damage);
  }
}

const KnownDamage::Units& KnownDamage::of(ViewPoint commit) const {
  static const Units none;
  const auto found = by_commit_.find(commit);
  return found == by_commit_.end() ? none : found->second;
}

const ScrubDamage* KnownDamage::of(ViewPoint commit, ckpt::UnitId unit) const {
  const Units& units = of(commit);
  const auto found = units.find(unit);
  return found == units.end() ? nullptr : found->second;
}

std::string damage_remedy(std::string_view commit) {
  return fmt::format(
      "a restore takes the next older version of a damaged unit, and ckptctl export the next "
      "older commit, both with a warning; save a new checkpoint to be safe again; ckptctl verify "
      "{} reads the bytes again",
      commit);
}

}  // namespace ckptd
