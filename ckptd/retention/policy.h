// Policy: which commits the rules of a run keep, and why. Pure.
//
// Two orders of commits:
//  - By position (is_newer): a later lineage is newer, and within a lineage a higher step. Used by
//    `last` and `best`. Overlapping snapshots of a lineage may be recorded out of order, and still
//    the highest step is the newest.
//  - By record, as in the journal. Used by the rules by time, because dates follow the records.
// Lineages are numbered in the order in which they open, and no snapshot of an older lineage
// commits after that: epochs/epochs.h settles them first. So the two orders differ only within a
// lineage. The order by position depends on nothing but the two commits. Removing other commits
// does not change it, so the `n` newest stay the `n` newest. It agrees with
// Catalog::latest_complete: in any lineage that has commits, both take the highest step.
//
// A rule of `n` hours (days, weeks, months, years) keeps the commit of each hour that was recorded
// last, until it has kept `n`. If the rule is not used up, it also keeps the oldest commit of all,
// as in restic. Hours, days etc. are in UTC, weeks are ISO weeks.
//
//   last n            the newest n
//   within d          every commit since the oldest one dated at most d before the newest
//   tag t             commits that have one of the tags
//   every N steps     in each lineage the first commit in each [kN, (k+1)N): a commit kept
//                     once stays kept, whatever follows
//   best n by m       the n lowest (or highest) values of metric m; the newer of equal values.
//                     Commits without m, or with NaN, do not count
//
// Clocks jump, so a date alone removes nothing. The rules by time (within, hourly ... yearly) judge
// a date by the order of the commits:
//  - A commit dated after the newest one is kept.
//  - A commit is out of order if an older one has a later date, or a newer one an earlier date. One
//    of the two dates is wrong, but it is unknown which. A rule keeps such a commit while the rule
//    is not used up, without counting it.
//  - If now is before the date of the newest commit, all commits are kept.
// A wrong date can remove no other commit, unless it is the newest commit's.
//
// Pinned commits stay regardless of the rules. A damaged commit counts only for `tag`: it must not
// take the place of a restorable commit.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ckptd/catalog/catalog.h"
#include "formats/keep_rules.h"

namespace ckptd {

// A commit, as input of the rules.
struct Candidate {
  ViewPoint point;
  uint64_t time_ns = 0;  // since 1970, UTC
  bool damaged = false;
  std::vector<std::string> tags;
  std::map<std::string, double> metrics;
  // Reasons to keep it regardless of the rules; empty: none.
  std::vector<std::string> always;
};

// The order by position: true if `a` is newer than `b`.
inline bool is_newer(const ViewPoint& a, const ViewPoint& b) { return b < a; }

// The reasons to keep each candidate ("last", "hourly", "tag best", ...), in the order of
// candidates; empty: not kept. `candidates`: the one recorded last comes first. `now_ns`: the wall
// clock, since 1970. If all dates are in order, applying a rule again to the kept commits keeps all
// of them.
std::vector<std::vector<std::string>> keep_reasons(const ckpt::KeepRules& rules,
                                                   const std::vector<Candidate>& candidates,
                                                   uint64_t now_ns);

// The candidate recorded last that counts for rules by time, if it is dated after now; else null.
// If set, these rules remove nothing.
const Candidate* dated_after_now(const ckpt::KeepRules& rules,
                                 const std::vector<Candidate>& candidates, uint64_t now_ns);

}  // namespace ckptd
