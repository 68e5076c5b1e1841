// ViewNeeds: the versions that a set of views of a run needs, computed for all views at once. Pure:
// only reads the catalog.
//
// A view reads its own lineage up to its step, then each ancestor up to the fork. A thousand views
// one by one would read the same commits again and again. So each lineage is read once, forward,
// with each unit's current version; a replaced version was needed if a view was passed since it
// appeared. Units that a view misses in its lineage are requested from the parent. A view only
// gains units going forward, and all views after the fork see the same state of the parent, so the
// first view requests units for all. Lineages are visited before their parents. The total cost is
// the number of units in all commits, plus all units once per lineage.
#pragma once

#include <map>
#include <set>
#include <vector>

#include "ckptd/catalog/catalog.h"

namespace ckptd {

class ViewNeeds {
 public:
  ViewNeeds(const Catalog& catalog, ckpt::RunId run) : catalog_(catalog), run_(run) {}

  // A view of an unknown lineage needs nothing.
  void add_view(ViewPoint view);
  void add_version(ViewPoint commit, ckpt::UnitId unit);
  // Call this once, after all add calls. Check Catalog::health() for an unreadable index.
  void resolve();

  // Units of this commit whose versions are needed, ascending; none for a damaged commit.
  std::vector<ckpt::UnitId> of(const CommitInfo& commit) const;
  // True if a view has its token counts from that commit.
  bool tokens_of(ViewPoint commit) const { return tokens_.contains(commit); }

 private:
  // Units requested from a lineage, as of a step: all, or those that later lineages lack.
  struct Asked {
    bool all = false;
    std::vector<bool> units;
  };
  class Walk;

  void resolve(const Lineage& lineage, size_t units);
  void ask_parent(const Lineage& lineage, ckpt::Step step, const std::vector<bool>& missing);
  void resolve_tokens(const Lineage& lineage);

  const Catalog& catalog_;
  const ckpt::RunId run_;
  std::map<ckpt::LineageId, std::map<ckpt::Step, Asked>> asked_;
  std::map<ckpt::LineageId, std::set<ckpt::Step>> tokens_asked_;
  std::map<ViewPoint, std::vector<ckpt::UnitId>> units_;  // needed, by commit
  std::set<ViewPoint> tokens_;
};

}  // namespace ckptd
