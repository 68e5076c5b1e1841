// Private to this folder: damage found by scrub and verify, for documents. Reads the catalog, and
// no data.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "ckptd/query/documents.h"

namespace ckptd {

// The damaged units of a run, by commit. Damaged bytes may be shared: every commit whose version of
// the unit needs these bytes, directly or as the base of a delta, is listed. Costs a few reads of
// the catalog for each known damage, and one for each commit that shares the extent, up to
// limits::kDamageHoldersMax of them.
class KnownDamage {
 public:
  using Units = std::map<ckpt::UnitId, const ScrubDamage*>;

  // `context.damages` must outlive this object.
  KnownDamage(const QueryContext& context, const RunInfo& run,
              const std::vector<ckpt::UnitSpec>& specs);

  bool empty() const { return by_commit_.empty(); }
  const Units& of(ViewPoint commit) const;                           // empty: no known damage
  const ScrubDamage* of(ViewPoint commit, ckpt::UnitId unit) const;  // null: no known damage

 private:
  std::map<ViewPoint, Units> by_commit_;
};

// One sentence: what a user can do next about damaged units of the commit with this name.
std::string damage_remedy(std::string_view commit);

}  // namespace ckptd
