// Versions that are in memory only, as a view sees them.
//
// A view at a step shows, for each unit, the newest of its durable versions and the one that is in
// memory only, by the same rules: not after the step, in the point's lineage, then in each ancestor
// up to the fork. The version in memory became visible with its snapshot's commit, so that commit
// must be there: deleted, it takes the version with it.
#pragma once

#include <sys/types.h>

#include <map>

#include "ckptd/catalog/catalog.h"
#include "ckptd/restore/context.h"
#include "ckptd/restore/plan.h"

namespace ckptd {

// The versions of one run's units, for one restore or question: whether a commit counts is looked
// up once.
class MemoryVersions {
 public:
  MemoryVersions(const Staging& staging, const Catalog& catalog, uid_t uid, ckpt::RunId run);
  // As a version of the catalog, its places in kNoSegment. nullopt: the unit has none that this uid
  // may see, that is whole, and whose commit counts.
  std::optional<UnitVersion> of(ckpt::UnitId unit);

 private:
  bool counts(const ckpt::SnapshotKey& snapshot);

  const Staging& staging_;
  const Catalog& catalog_;
  const uid_t uid_;
  const ckpt::RunId run_;
  std::shared_ptr<const std::vector<ckpt::UnitSpec>> units_;  // null: no such run
  std::map<ckpt::SnapshotKey, bool> counts_;
};

// Does a view on this path (Catalog::path) show the version in memory, or the durable one? Given
// are the commits they came with. Pure.
bool shows_memory(const std::vector<ViewPoint>& path, const std::optional<ViewPoint>& durable,
                  const std::optional<ViewPoint>& memory);

// `oracle`, for a request that takes versions in memory, too. An older version, to fall back to, is
// always a durable one.
RestoreOracle with_memory(const RestoreOracle& oracle, std::vector<ViewPoint> path,
                          std::function<std::optional<UnitVersion>(ckpt::UnitId)> memory);

// What this request of this uid is to be planned with.
RestoreOracle restore_oracle(const RestoreContext& context, uid_t uid,
                             const RestoreRequest& request);

}  // namespace ckptd
