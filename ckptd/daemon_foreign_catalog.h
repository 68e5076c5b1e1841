// Is a catalog the index of this journal, or of another history: of a copy of the store that went
// on by itself, or of records that the journal lost and whose numbers it gave out again?
#pragma once

#include <map>
#include <string>
#include <vector>

#include "ckptd/catalog/catalog.h"
#include "ckptd/daemon_store.h"

namespace ckptd {

// Compares starts of ckptd: each that the catalog knows must be the journal's at the same position,
// as far as the journal goes. Then the newest commit of each run, both ways: the catalog's must be
// the journal's at the same position, and the journal's, up to the catalog's last record, must be
// in the catalog, unless its run was removed. Returns what differs; empty: nothing. The journal
// must be whole. The error of a catalog that cannot be read.
Result<std::string> why_foreign(const Catalog& catalog, const RecoveredStore& journal);

// Runs and lineages of an index that is complete, to compare an older one of the same journal with.
class KnownRuns {
 public:
  explicit KnownRuns(const Catalog& complete);
  // Names a run or lineage of the older index that the complete one lacks; empty: there is none.
  std::string why_foreign(const Catalog& older) const;

 private:
  struct Run {
    RunInfo info;
    std::vector<Lineage> lineages;
  };
  std::map<ckpt::RunId, Run> runs_;
};

}  // namespace ckptd
