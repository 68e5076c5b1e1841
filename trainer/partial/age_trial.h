// AgeTrial: is it right to weigh with age (selector.h)? Found out by trying, for nothing.
//
// With age or without, which rule loses less depends on the loads: with, where an expert goes on
// getting what it has got; without, where that says nothing. So both play along with what happens,
// each with a ledger of its own in which nothing is written. At every snapshot it is known, to the
// token, what a failure just before it would have cost each of them. Age is weighed from when it
// has cost less by kMarginMin, over the latest four rounds of all experts, until it costs more.
//
// Without age and without replicas the risk-aware choice is the load-aware one, to the expert. So
// where risk-aware follows another rule, that rule has proved better than load-aware; where nothing
// can be known of what comes next, it is load-aware. This is no bound for every trace there could
// be: one that turns when the leader changes makes the wrong one lead (bench/README.md).
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

// What the trial has come to. A run keeps it through restarts.
struct AgeTrialScore {
  double loss_without = 0;  // tokens that the next failure takes, expected; a mean over snapshots
  double loss_with = 0;
  bool weigh_age = false;
  bool operator==(const AgeTrialScore&) const = default;
};

// kInvalidArgument for what no trial comes to.
Status check_score(const AgeTrialScore& score);

class AgeTrial {
 public:
  // Of an advantage that is less nothing follows: with loads that are the same for all experts
  // but for noise, the rules are as far from each other by chance.
  static constexpr double kMarginMin = 0.03;

  // Both rules go on from these saves, as they are: a restart forgets which other experts either of
  // them would have saved until then, and keeps the score.
  void begin(const SaveLedger& saved, const AgeTrialScore& score);

  struct Snapshot {
    uint64_t number = 0;
    uint64_t step = 0;
    std::span<const int64_t> held;  // [expert] tokens whose updates its state holds
  };
  // A snapshot that takes some experts is due: judges the rules, and both choose.
  void take(const Snapshot& snapshot, const ExpertGrid& grid, const SelectionOptions& options,
            const CandidateOf& candidate_of);
  // One that takes all of them.
  void take_all(const Snapshot& snapshot);

  // As of SaveLedger.
  void fail(uint64_t snapshot);
  void came_back(size_t expert, const SaveLedger::Saved& version);

  const AgeTrialScore& score() const { return score_; }

 private:
  void judge(const std::array<double, 2>& losses, double snapshots_mean);

  std::array<SaveLedger, 2> ledgers_;  // without age, with it
  AgeTrialScore score_;
};

}  // namespace moetrain
