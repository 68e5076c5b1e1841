// Policy: which commits the rules of a run keep, and why. Pure.
//
// Commits are looked at from the newest to the oldest, in the order in which the journal has them.
// As restic has it, a rule of `n` hours (days, weeks, months, years) keeps the newest commit of
// each hour that has one, until it has kept `n`; the oldest commit of all counts for a rule that is
// not used up. Hours and the rest are those of UTC, weeks are ISO weeks.
//
//   last n            the newest n
//   within d          every commit since the oldest one that is dated at most d before the newest
//   tag t             those that carry one of the tags
//   every N steps     of each lineage the first commit in each [kN, (k+1)N): one that was kept
//                     once stays kept, whatever follows
//   best n by m       the n lowest (or highest) values of the metric m; of equal ones the newer.
//                     Commits that lack it, or have NaN, do not count
//
// Clocks jump, so a date alone removes nothing. The rules by time (within, hourly ... yearly) judge
// a date by the order of the commits:
//  - A commit that is dated after the newest one is kept.
//  - A commit is out of order if an older one has a later date, or a newer one an earlier date. One
//    of the two dates is wrong, and nobody knows which. A rule keeps it while the rule is not used
//    up, and counts it as nothing.
//  - If now is before the date of the newest commit, all commits are kept.
// A wrong date can remove no other commit, unless it is the newest commit's.
//
// What is pinned is kept by no rule and stays. A damaged commit counts for no rule but `tag`: it
// must not take the place of one that can be restored.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ckptd/catalog/catalog.h"
#include "formats/keep_rules.h"

namespace ckptd {

// A commit, as rules see it.
struct Candidate {
  ViewPoint point;
  uint64_t time_ns = 0;  // since 1970, UTC
  bool damaged = false;
  std::vector<std::string> tags;
  std::map<std::string, double> metrics;
  // Kept whatever the rules say; empty: no.
  std::vector<std::string> always;
};

// The reasons to keep each candidate ("last", "hourly", "tag best", ...), in their order; empty: it
// is not kept. `candidates`: newest first. `now_ns`: the wall clock, since 1970. Where all dates
// are in order, a rule keeps the same commits again when it sees only those it kept.
std::vector<std::vector<std::string>> keep_reasons(const ckpt::KeepRules& rules,
                                                   const std::vector<Candidate>& candidates,
                                                   uint64_t now_ns);

// The newest candidate that counts for rules by time, if it is dated after now; else null. Then
// these rules remove nothing.
const Candidate* dated_after_now(const ckpt::KeepRules& rules,
                                 const std::vector<Candidate>& candidates, uint64_t now_ns);

}  // namespace ckptd
