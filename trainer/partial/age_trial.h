// AgeTrial: decides whether to weigh with age (selector.h), by shadow evaluation of all rules.
//
// Which rule loses less depends on the loads. With age is better if an expert's load is stable;
// without age is better if past loads predict nothing. So every rule is evaluated beside the
// actual run, each on its own ledger, without writing anything: without age, with its root, with
// full age. One more ledger follows the rule in force. At every snapshot the trial knows, to the
// token, what a failure just before it would have cost under each rule.
//
// Risk-aware asks it about layers whose experts differ in risk: in all other layers every rule
// chooses the same experts as load-aware, and there is nothing to try. Age-aware asks about all
// layers. Without age and without replicas, its choice is that of load-aware: the starting rule.
// Changing the rule costs first and pays later: for some snapshots, experts that count little now
// are saved instead of those that count most. So the trial changes only to a rule that
//   - has lost less by kMarginMin over the latest four rounds of all experts,
//   - is ahead since the trial began by as much as it was ever behind, and
//   - was never further behind than the budget: the lead of the saves so far over those
//     without age, plus kCredit of the losses without age.
// The trial returns to no age if that has recently lost less, or at once if the budget is
// overdrawn, by kDebtMax or by as much as the rule was ever behind; the next time a rule needs
// twice the evidence.
//
// Guarantee for age-aware, without replicas: until a rule meets all three conditions, the choice is
// that of load-aware, to the expert. And whenever age is adopted, all possible failures
// until then, one before each snapshot, have cost in sum at most 1 + kCredit of their cost under
// load-aware. (A restart starts all ledgers from the existing saves.)
// Limit: the future is unknown. If a trace ends or turns before a change has paid off, the rest of
// its cost stays unpaid. After a return, the ledgers agree only once all experts have been
// saved again, or later if the choice is partly random.
//
// No I/O. Used by one thread. Deterministic: the same numbers give the same result on every rank.
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

// Returns the state of an expert (a position in the grid), given the saves in the ledger.
using CandidateOf = std::function<ExpertCandidate(const SaveLedger& ledger, size_t expert)>;

// The experts that a snapshot takes, over all layers, as positions in the grid, ascending:
// options.k of each layer, or more if the bound demands it.
std::vector<uint32_t> choose_experts(const ExpertGrid& grid, const SelectionOptions& options,
                                     const SaveLedger& ledger, const CandidateOf& candidate_of);

// State of the trial, which a run keeps across restarts. Losses are expected tokens lost by the
// next failure, summed over the snapshots: each of them might be preceded by one.
struct AgeTrialScore {
  struct Rule {
    double recent = 0;      // its losses; older ones fade
    double ahead = 0;       // lead over the losses without age; negative: more lost
    double behind_max = 0;  // its largest lag ever
    bool operator==(const Rule&) const = default;
  };
  double judged = 0;  // from 1 on, enough snapshots have been judged
  double lost = 0;    // without age
  double ahead = 0;   // of the actual saves, as in Rule
  uint32_t stops = 0;
  AgeWeight weight = AgeWeight::kNone;  // the rule in force
  std::array<Rule, 3> rules;            // [AgeWeight]
  bool operator==(const AgeTrialScore&) const = default;
};

// kInvalidArgument for a state that no trial can reach.
Status check_score(const AgeTrialScore& score);

class AgeTrial {
 public:
  // Minimum relevant advantage. Below it the difference may be chance: under loads that differ only
  // by noise, the rules differ by about as much.
  static constexpr double kMarginMin = 0.05;
  // Part of the loss without age that may be spent before any gain.
  static constexpr double kCredit = 0.001;
  // Part of the same loss that may be overdrawn while a followed rule has not paid off.
  static constexpr double kDebtMax = 0.003;
  // Snapshots to judge before any change; one round of all experts comes first.
  static constexpr double kSnapshotsMin = 16;
  // A rule needs 2^stops times the evidence: practically never.
  static constexpr uint32_t kStopsMax = 64;

  // Starts all rules from these saves: a restart forgets which other experts each rule would have
  // saved until then, and keeps the score.
  void begin(const SaveLedger& saved, const AgeTrialScore& score);

  struct Snapshot {
    uint64_t number = 0;
    uint64_t step = 0;
    std::span<const int64_t> held;  // [expert] tokens whose updates its state contains
  };
  // Call for a snapshot that takes some experts: judges the rules, then each rule chooses.
  void take(const Snapshot& snapshot, const ExpertGrid& grid, const SelectionOptions& options,
            const CandidateOf& candidate_of);
  // Call for a snapshot that takes all experts.
  void take_all(const Snapshot& snapshot);

  // See SaveLedger.
  void fail(uint64_t snapshot);
  void came_back(size_t expert, const SaveLedger::Saved& version);

  const AgeTrialScore& score() const { return score_; }

 private:
  static constexpr size_t kRules = 3;
  static constexpr size_t kFollowed = kRules;  // the ledger of the actual saves
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
