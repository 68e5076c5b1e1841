// PrunePlan: what pruning a run removes, what it must leave, and why. Pure: asks the catalog only.
//
// The rules choose commits. A commit that is kept pins what its view resolves to, however old: the
// versions of units that lie in removed commits stay, and so do the counts of tokens that its lost
// tokens are worked out from. So does what the view of the current lineage as of now has: a partial
// snapshot that is being taken, or the next one, builds on it. Whatever the rules say, these stay:
// what is pinned, the newest complete view of the current lineage (without one the newest commit),
// the commit that the current lineage goes on from, what another run was started from.
//
// Somebody may also ask for one commit to go, or for the whole run: then it is not rules that
// choose, and what is kept for a reason goes by force only.
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

// A view that a reader holds, and the words for that: "held by ckptctl (process 17, user 0) since
// 2026-03-02T10:00:00Z". Its commit stays, and all that the view resolves to.
struct HeldView {
  ViewPoint view;
  std::string reason;
};

struct PruneRequest {
  ckpt::RunId run = 0;
  ckpt::KeepRules rules;
  uint64_t now_ns = 0;  // the wall clock, since 1970: rules by time need it
  // Snapshots that are being taken. A commit that one of them replaces is not to be touched, nor
  // what its view will show: later ones may have been committed before it.
  std::vector<ViewPoint> busy;
  // Versions whose bytes are about to be referred to: they stay.
  std::vector<HeldVersion> held;
  std::vector<HeldView> held_views;
};

struct RemovalRequest {
  ckpt::RunId run = 0;
  std::optional<ViewPoint> point;  // that commit alone; none: the run
  std::string reason;
  bool force = false;   // also what is tagged or pinned, or, while nobody trains, resumed from next
  bool in_use = false;  // an epoch of the run goes on: the next snapshot builds on its newest view
  std::vector<ViewPoint> busy;
  std::vector<HeldVersion> held;
  std::vector<HeldView> held_views;  // without those that are to be ended
};

struct PrunePlan {
  struct Kept {
    ViewPoint point;
    uint64_t time_ns = 0;
    std::vector<std::string> reasons;
  };
  // A commit that goes, or of one that is gone already more.
  struct Removed {
    ViewPoint point;
    uint64_t time_ns = 0;
    bool again = false;  // it is not listed any more; fewer of its units are needed now
    std::string reason;
    std::vector<std::string> tags;         // that go with it
    bool pinned = false;                   // so does its pin
    std::vector<ckpt::UnitId> kept_units;  // ascending: whose versions stay
    bool kept_tokens = false;
    uint64_t bytes = 0;  // of the versions that go
  };
  std::vector<Kept> kept;        // newest first
  std::vector<Removed> removed;  // newest first
  std::set<ViewPoint> removed_points() const;
  // Sentences about the plan as a whole: a clock that is behind, readers that keep commits alive, a
  // rule that matches nothing.
  std::vector<std::string> notes;
};

// kNotFound: no such run. kFailedPrecondition: rules that keep nothing, or ask for a metric that
// no commit has. An index that cannot be read is an error: it must not make anything look unneeded.
Result<PrunePlan> plan_prune(const Catalog& catalog, const PruneRequest& request);

// The error that plan_prune() would have for these rules now, except that it says of the rules that
// they stay as they were. A run without commits takes any: its
// metrics and tags are yet to come.
Status check_rules(const Catalog& catalog, ckpt::RunId run, const ckpt::KeepRules& rules);

// kFailedPrecondition names what protects it, and whether force helps. kNotFound: no such run, or
// no such commit.
Result<PrunePlan> plan_removal(const Catalog& catalog, const RemovalRequest& request);

}  // namespace ckptd
