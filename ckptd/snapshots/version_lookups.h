// The newest versions of units, looked up once per slab, for comparison with it (dedup, deltas).
#pragma once

#include <map>
#include <optional>

#include "ckptd/alarms/judge.h"
#include "ckptd/catalog/catalog.h"
#include "ckptd/limits.h"

namespace ckptd {

// The newest versions of units of one slab, each looked up once, with a limit.
class VersionLookups {
 public:
  VersionLookups(const Catalog& catalog, ckpt::RunId run, const NewestVersions& newest)
      : catalog_(catalog), run_(run), newest_(newest) {}
  // Null: there is none, or it was not looked up. An unreadable catalog also gives null: the caller
  // checks its health() afterwards.
  const UnitVersion* of(ckpt::UnitId unit) {
    const auto known = found_.find(unit);
    if (known != found_.end()) return known->second ? &*known->second : nullptr;
    if (!newest_[unit] || found_.size() == limits::kDedupLookupsPerSlabMax) return nullptr;
    const ViewPoint point{newest_[unit]->lineage, newest_[unit]->step};
    const auto& version = found_[unit] = catalog_.newest_version(run_, unit, point, std::nullopt);
    return version ? &*version : nullptr;
  }

 private:
  const Catalog& catalog_;
  const ckpt::RunId run_;
  const NewestVersions& newest_;
  std::map<ckpt::UnitId, std::optional<UnitVersion>> found_;
};

}  // namespace ckptd
