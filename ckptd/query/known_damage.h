// Private to this folder: damage that scrub and verify have found, as documents tell of it. Reads
// the catalog, and no data.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "ckptd/query/documents.h"

namespace ckptd {

// The damaged units of a run, by commit. Damaged bytes may be shared: every commit whose version of
// the unit has them is listed, be it that it names them as its own bytes or as the base of a delta.
// Costs a few reads of the catalog for each damage that is known, and one for each commit that
// shares the extent, at most limits::kDamageHoldersMax of these.
class KnownDamage {
 public:
  using Units = std::map<ckpt::UnitId, const ScrubDamage*>;

  // `context.damages` must outlive it.
  KnownDamage(const QueryContext& context, const RunInfo& run,
              const std::vector<ckpt::UnitSpec>& specs);

  bool empty() const { return by_commit_.empty(); }
  const Units& of(ViewPoint commit) const;                           // empty: none is known
  const ScrubDamage* of(ViewPoint commit, ckpt::UnitId unit) const;  // null: none is known

 private:
  std::map<ViewPoint, Units> by_commit_;
};

// The next thing a user can do about damaged units of the commit with this name: one sentence.
std::string damage_remedy(std::string_view commit);

}  // namespace ckptd
