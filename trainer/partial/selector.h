// Selectors: which K of a layer's experts a snapshot takes.
//
//   sequential  those not saved for longest: round robin, in an order in which neighbours lie on
//               different ranks and which every layer begins elsewhere (PEC, arXiv:2408.04307)
//   load-aware  those with most tokens since their last save (MoC-System, ASPLOS 2025)
//   risk-aware  those whose loss would cost most: tokens since the last save, times the
//               probability that a failure takes the last live replica, times the snapshots since
//               where loads stay. The last factor is what saves bytes: with u tokens a snapshot
//               and probability p an expert that is saved every T snapshots loses p*u*T/2 on
//               average, and the sum over experts is least, for equal bytes, where T goes with
//               1/sqrt(p*u), that is where p*u*T^2 is equal. Taking the largest p*u*T instead
//               equalises p*u*T, which costs as much as round robin. Where the tokens of one
//               snapshot say nothing of the next ones' (bursts), all experts have the same future,
//               and the most tokens are the best choice. Weighing with sqrt(T) has most of what
//               there is to gain, costs a quarter as much to change over to, and is less wrong
//               where T is. Which of the three it is, the trial tells (age_trial.h).
//               In a layer whose experts all run the same risk it is load-aware, to the expert:
//               there risk says nothing, and to weigh age may cost something before it pays.
//   age-aware   risk-aware that weighs age in those layers, too, once the trial has found that it
//               loses less on this run's loads: less in the long run, with no bound for each trace
//
// Whatever the selector, an expert is saved at least every `staleness_max` snapshots: of the sets
// that keep this possible for all experts at all later snapshots, the best one is taken.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "trainer/placement/layer_slots.h"

namespace moetrain {

enum class Selector : uint8_t { kSequential, kLoadAware, kRiskAware, kAgeAware };
inline constexpr Selector kSelectors[] = {Selector::kSequential, Selector::kLoadAware,
                                          Selector::kRiskAware, Selector::kAgeAware};

std::string_view selector_name(Selector selector);
// kInvalidArgument for any other word.
Result<Selector> parse_selector(std::string_view name);

// What risk-aware and age-aware make of the snapshots since an expert's last save; more from one to
// the next.
enum class AgeWeight : uint8_t { kNone, kRoot, kFull };
inline bool weighs_age(Selector selector) {
  return selector == Selector::kRiskAware || selector == Selector::kAgeAware;
}

struct SelectionOptions {
  Selector selector = Selector::kRiskAware;
  uint32_t k = 1;                           // experts to take, 1 .. those of the layer
  uint32_t staleness_max = 0;               // snapshots from one save of an expert to its next
  AgeWeight age_weight = AgeWeight::kFull;  // of selectors that weigh age
};

// The bound where none is given: four times what round robin needs.
uint32_t default_staleness_max(uint32_t experts, uint32_t k);

// kInvalidArgument, with what would do, if k is 0 or more than there are experts, or if k at a time
// cannot visit all experts within the bound.
Status check_selection(const SelectionOptions& options, uint32_t experts);

// What is known of one expert.
struct ExpertCandidate {
  int64_t unsaved_tokens = 0;   // updates that its newest version does not hold
  uint64_t age = 1;             // snapshots since the one that saved it; 1: it was the one before
  double loss_probability = 1;  // that the next failure takes its last live replica
  uint32_t turn = 0;            // its place in the round robin
};

// How many experts have to be taken now so that options.k at a time keep the bound from here on:
// options.k itself, unless earlier snapshots failed or were taken under another bound or a smaller
// k. At most as many as there are.
uint32_t k_within_bound(const SelectionOptions& options,
                        std::span<const ExpertCandidate> candidates);

// The experts of one layer to take, `count` of them, ascending: options.k, or more now, as
// k_within_bound() says; the bound is kept by options.k at each later snapshot. Ties go to the
// older, then to whose turn is earlier. The options have been checked. An expert that is overdue
// already (earlier snapshots failed, or took fewer) goes first.
std::vector<uint32_t> select_experts(const SelectionOptions& options,
                                     std::span<const ExpertCandidate> candidates, uint32_t count);
inline std::vector<uint32_t> select_experts(const SelectionOptions& options,
                                            std::span<const ExpertCandidate> candidates) {
  return select_experts(options, candidates, options.k);
}

// [expert]: its place in the round robin of this layer. Consecutive places are on different ranks
// as far as the placement allows; layers begin `k` places apart, so that one snapshot's experts
// spread over the ranks. Every expert has a slot.
std::vector<uint32_t> turns(const LayerSlots& slots, uint32_t experts, uint32_t layer, uint32_t k);

}  // namespace moetrain
