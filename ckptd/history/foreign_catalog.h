// Decides whether a catalog is the index of this journal, or of another history: of a copy of the
// store that diverged, or of lost records whose numbers the journal assigned again.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "ckptd/catalog/catalog.h"
#include "ckptd/history/recovered_store.h"

namespace ckptd {

// Compares startups of ckptd: each startup in the catalog must be in the journal at the same
// position, up to the journal's end. Then the newest commit of each run, both ways: the catalog's
// must be in the journal at the same position, and the journal's, up to the catalog's last record,
// must be in the catalog, unless its run was removed. Returns the difference; empty: none.
// Precondition: the journal is complete. Fails if the catalog cannot be read.
Result<std::string> why_foreign(const Catalog& catalog, const RecoveredStore& journal);

// Runs and lineages of a complete index, for comparison with an older one of the same journal.
class KnownRuns {
 public:
  explicit KnownRuns(const Catalog& complete);
  // Names a run or lineage of the older index that the complete one lacks; empty: none.
  std::string why_foreign(const Catalog& older) const;

 private:
  struct Run {
    RunInfo info;
    std::vector<Lineage> lineages;
  };
  std::map<ckpt::RunId, Run> runs_;
};

}  // namespace ckptd
