// Unit versions that exist only in memory, as a view sees them.
//
// For each unit, a view shows the newer of its newest durable version and its version in memory.
// The same rules apply to both: not after the step, in the point's lineage, then in each ancestor
// up to the fork. A version in memory is visible through its snapshot's commit; deleting the commit
// removes the version from views.
#pragma once

#include <sys/types.h>

#include <map>

#include "ckptd/catalog/catalog.h"
#include "ckptd/restore/context.h"
#include "ckptd/restore/plan.h"

namespace ckptd {

// The versions of one run's units, for one restore or query: the state of each commit is looked up
// only once.
class MemoryVersions {
 public:
  MemoryVersions(const Staging& staging, const Catalog& catalog, uid_t uid, ckpt::RunId run);
  // The version in memory as a catalog version with places in kNoSegment. nullopt unless this uid
  // may see the version, all of its bytes are in memory, and its commit is visible.
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

// True if a view on this path (Catalog::path) shows the version in memory, and not the durable one.
// `durable` and `memory` are the versions' commits. Pure.
bool shows_memory(const std::vector<ViewPoint>& path, const std::optional<ViewPoint>& durable,
                  const std::optional<ViewPoint>& memory);

// Extends `oracle` for a request that allows versions in memory. An older version for a fallback is
// always a durable one.
RestoreOracle with_memory(const RestoreOracle& oracle, std::vector<ViewPoint> path,
                          std::function<std::optional<UnitVersion>(ckpt::UnitId)> memory);

// The oracle for planning this request of this uid.
RestoreOracle restore_oracle(const RestoreJobContext& context, uid_t uid,
                             const RestoreRequest& request);

}  // namespace ckptd
