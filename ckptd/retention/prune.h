// PrunePlan: what pruning a run removes, what stays, and why. Pure: only reads the catalog.
//
// The rules choose commits. A kept commit pins everything that its view resolves to, however old:
// unit versions in removed commits stay, and so do the token counts that its lost tokens are
// computed from. The current view of the current lineage is pinned, too: the running partial
// snapshot, or the next one, builds on it. These stay regardless of the rules: pinned commits, the
// newest complete view of the current lineage (without one, the newest commit), the fork commit of
// the current lineage, and commits that other runs were started from.
//
// A user may also remove one commit, or the whole run: then no rules apply, and protected commits
// are removed only by force.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "ckptd/retention/policy.h"

namespace ckptd {

// A version that something other than a view needs.
struct HeldVersion {
  ViewPoint commit;
  ckpt::UnitId unit = 0;
};

// A view that a reader holds, and the text for that: "held by ckptctl (process 17, user 0) since
// 2026-03-02T10:00:00Z". Its commit stays, and all versions that the view resolves to.
struct HeldView {
  ViewPoint view;
  std::string reason;
};

struct PruneRequest {
  ckpt::RunId run = 0;
  ckpt::KeepRules rules;
  uint64_t now_ns = 0;  // wall clock, since 1970: for rules by time
  // Snapshots in progress. A commit that one of them replaces must stay, and so must everything
  // that its view will show: later ones may have been committed before it.
  std::vector<ViewPoint> busy;
  // Versions whose bytes will soon be referenced: they stay.
  std::vector<HeldVersion> held;
  std::vector<HeldView> held_views;
};

struct RemovalRequest {
  ckpt::RunId run = 0;
  std::optional<ViewPoint> point;  // only that commit; none: the run
  std::string reason;
  bool force = false;   // also a tagged, pinned or resume commit
  bool in_use = false;  // an epoch of the run is open: the next snapshot builds on its newest view
  std::vector<ViewPoint> busy;
  std::vector<HeldVersion> held;
  std::vector<HeldView> held_views;  // without holds that are to be ended
};

struct PrunePlan {
  struct Kept {
    ViewPoint point;
    uint64_t time_ns = 0;
    std::vector<std::string> reasons;
  };
  // A commit to remove, or a deleted one that loses more units.
  struct Removed {
    ViewPoint point;
    uint64_t time_ns = 0;
    bool again = false;  // already deleted; fewer of its units are needed now
    std::string reason;
    std::vector<std::string> tags;         // removed with the commit
    bool pinned = false;                   // the commit is pinned; the pin is removed
    std::vector<ckpt::UnitId> kept_units;  // ascending: units whose versions stay
    bool kept_tokens = false;
    uint64_t bytes = 0;  // of the removed versions
  };
  // In both lists the commit recorded last comes first.
  std::vector<Kept> kept;
  std::vector<Removed> removed;
  std::set<ViewPoint> removed_points() const;
  // Sentences about the plan as a whole: a slow clock, readers that keep commits, a rule that
  // matches nothing.
  std::vector<std::string> notes;
};

// kNotFound: no such run. kFailedPrecondition: rules that keep nothing, or a metric that no commit
// has. An index that cannot be read is an error: nothing may look unneeded because of it.
Result<PrunePlan> plan_prune(const Catalog& catalog, const PruneRequest& request);

// The error that plan_prune() would return for these rules now, with a text that says that the
// rules are unchanged. A run without commits accepts any rules, because its metrics and tags are
// still to come.
Status check_rules(const Catalog& catalog, ckpt::RunId run, const ckpt::KeepRules& rules);

// kFailedPrecondition names the protection, and whether force helps. kNotFound: no such run, or no
// such commit.
Result<PrunePlan> plan_removal(const Catalog& catalog, const RemovalRequest& request);

}  // namespace ckptd
