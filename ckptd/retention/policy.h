// Policy: which commits the rules of a run keep, and why. Pure.
//
// Commits are looked at from the newest to the oldest, in the order in which they were committed.
// As restic has it, a rule of `n` hours (days, weeks, months, years) keeps the newest commit of
// each hour that has one, until it has kept `n`; the oldest commit of all counts for a rule that is
// not used up. Hours and the rest are those of UTC, weeks are ISO weeks.
//
//   last n            the newest n
//   within d          those at most d older than the newest one
//   tag t             those that carry one of the tags
//   every N steps     of each lineage the first commit in each [kN, (k+1)N): one that was kept
//                     once stays kept, whatever follows
//   best n by m       the n lowest (or highest) values of the metric m; of equal ones the newer.
//                     Commits that lack it, or have NaN, do not count
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

// Why each candidate is kept ("last", "hourly", "tag best", ...), in their order; empty: it is not.
// `candidates`: newest first. A rule keeps the same commits again when it sees only those it kept.
std::vector<std::vector<std::string>> keep_reasons(const ckpt::KeepRules& rules,
                                                   const std::vector<Candidate>& candidates);

}  // namespace ckptd
