// AgeTrial: is it right to weigh with age (selector.h)? Found out by trying, for nothing.
//
// With age or without, which rule loses less depends on the loads: with, where an expert goes on
// getting what it has got; without, where that says nothing. So all rules play along with what
// happens, each with a ledger of its own in which nothing is written: without age, with its root,
// with all of it. One more ledger follows the rule that is followed at the time. At every snapshot
// it is known, to the token, what a failure just before it would have cost each of them.
//
// Risk-aware asks it about layers whose experts differ in risk: in all others every rule is
// load-aware, to the expert, and there is nothing to try. Age-aware asks about all layers. Without
// age and without replicas its choice is load-aware's, and that is where it begins. To leave it
// costs first and pays later: for some snapshots what counts little now is saved instead of what
// counts most. So it is left only for a rule that
//   - has lost less by kMarginMin over the latest four rounds of all experts,
//   - is ahead since the trial began by as much as it was ever behind, and
//   - was never further behind than there is to spend: what the saves so far are ahead of those
//     without age, and kCredit of what these have lost.
// It is gone back to when it has lost less of late, or at once when what there is to spend is
// overdrawn, by kDebtMax or as much as the rule was ever behind; the next time a rule has to be
// twice as sure.
//
// What this guarantees of age-aware, without replicas: as long as no rule has met all three, it is
// load-aware, to the expert. And whenever age is taken up, all failures that might have come
// until then, one before each snapshot, have cost at most 1 + kCredit of what they would have cost
// load-aware, in sum. (A restart begins all ledgers with the saves that there are.)
// What it cannot: what comes next is not known. A trace that ends or turns while a change is not
// paid for yet leaves that much unpaid; and after going back it takes until all experts have been
// saved again, or longer where chance rules, until both save the same ones.
//
// No I/O. Used by one thread. All who feed it the same numbers come to the same.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "trainer/partial/experts.h"
#include "trainer/partial/save_ledger.h"
#include "trainer/partial/selector.h"

namespace moetrain {

// What is known of an expert (a position in the grid) whose saves are those of the ledger.
using CandidateOf = std::function<ExpertCandidate(const SaveLedger& ledger, size_t expert)>;

// The experts of all layers that a snapshot takes, as positions in the grid, ascending: options.k
// of each layer, or more where the bound demands it.
std::vector<uint32_t> choose_experts(const ExpertGrid& grid, const SelectionOptions& options,
                                     const SaveLedger& ledger, const CandidateOf& candidate_of);

// What the trial has come to. A run keeps it through restarts. Losses are tokens that the next
// failure takes, expected, summed over the snapshots: each of them might be preceded by one.
struct AgeTrialScore {
  struct Rule {
    double recent = 0;      // its losses; older ones fade
    double ahead = 0;       // by which it lost less than without age; negative: more
    double behind_max = 0;  // the most by which it was ever behind
    bool operator==(const Rule&) const = default;
  };
  double judged = 0;  // from 1 there have been enough snapshots
  double lost = 0;    // without age
  double ahead = 0;   // of the saves that the trial has led to, as in Rule
  uint32_t stops = 0;
  AgeWeight weight = AgeWeight::kNone;  // to follow
  std::array<Rule, 3> rules;            // [AgeWeight]
  bool operator==(const AgeTrialScore&) const = default;
};

// kInvalidArgument for what no trial comes to.
Status check_score(const AgeTrialScore& score);

class AgeTrial {
 public:
  // Of an advantage that is less nothing follows: with loads that are the same for all experts
  // but for noise, the rules are as far from each other by chance.
  static constexpr double kMarginMin = 0.05;
  // Of what is lost without age: what may be spent before anything is gained.
  static constexpr double kCredit = 0.001;
  // Of the same: what may be overdrawn, once a rule is followed, until it has paid for itself.
  static constexpr double kDebtMax = 0.003;
  // One round of all experts is judged first, and so many snapshots.
  static constexpr double kSnapshotsMin = 16;
  // A rule is asked to be 2^stops as sure: as good as never.
  static constexpr uint32_t kStopsMax = 64;

  // All rules go on from these saves, as they are: a restart forgets which other experts any of
  // them would have saved until then, and keeps the score.
  void begin(const SaveLedger& saved, const AgeTrialScore& score);

  struct Snapshot {
    uint64_t number = 0;
    uint64_t step = 0;
    std::span<const int64_t> held;  // [expert] tokens whose updates its state holds
  };
  // A snapshot that takes some experts is due: judges the rules, and all choose.
  void take(const Snapshot& snapshot, const ExpertGrid& grid, const SelectionOptions& options,
            const CandidateOf& candidate_of);
  // One that takes all of them.
  void take_all(const Snapshot& snapshot);

  // As of SaveLedger.
  void fail(uint64_t snapshot);
  void came_back(size_t expert, const SaveLedger::Saved& version);

  const AgeTrialScore& score() const { return score_; }

 private:
  static constexpr size_t kRules = 3;
  static constexpr size_t kFollowed = kRules;  // the ledger of what the trial has led to
  using Losses = std::array<double, kRules + 1>;

  void judge(const Losses& losses, uint32_t round);
  bool is_better(AgeWeight weight) const;
  AgeWeight judged_weight() const;
  double to_spend() const { return score_.ahead + kCredit * score_.lost; }
  const AgeTrialScore::Rule& rule(AgeWeight weight) const {
    return score_.rules[static_cast<size_t>(weight)];
  }

  std::array<SaveLedger, kRules + 1> ledgers_;  // [AgeWeight], and kFollowed
  AgeTrialScore score_;
};

}  // namespace moetrain
