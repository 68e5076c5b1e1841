// ViewNeeds: what the views of a run show, of all views that are asked for at once. Pure: asks the
// catalog only.
//
// A view looks at its own lineage up to its step, then at each ancestor up to the fork. Asked one
// by one, each of a thousand views would go over the same commits. So each lineage is gone through
// once, forward, with the version that each unit has at the time; a version that is replaced was
// needed if a view was passed since it came. What a view misses in its lineage is asked of the
// parent. As going forward a view only gains units, and all views from the fork on see the parent
// as of then, the first of them asks for the others, too. Lineages are gone through before their
// parents. All of it costs as much as there are units in the commits, and units once per lineage.
#pragma once

#include <map>
#include <set>
#include <vector>

#include "ckptd/catalog/catalog.h"

namespace ckptd {

class ViewNeeds {
 public:
  ViewNeeds(const Catalog& catalog, ckpt::RunId run) : catalog_(catalog), run_(run) {}

  // Of unknown lineages nothing is needed.
  void add_view(ViewPoint view);
  void add_version(ViewPoint commit, ckpt::UnitId unit);
  // Once, after all that is added. An index that cannot be read: see Catalog::health().
  void resolve();

  // Those that are needed as they are in that commit, ascending; of a damaged one none.
  std::vector<ckpt::UnitId> of(const CommitInfo& commit) const;
  // Does a view have its counts of tokens from that commit?
  bool tokens_of(ViewPoint commit) const { return tokens_.contains(commit); }

 private:
  // Of one lineage, as of a step: all units, or those that later lineages do not have.
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
