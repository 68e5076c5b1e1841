// Selectors: choose the K experts of a layer that a snapshot takes.
//
//   sequential  the longest unsaved: round robin, in an order in which neighbours lie on
//               different ranks and which every layer begins elsewhere (PEC, arXiv:2408.04307)
//   load-aware  those with most tokens since their last save (MoC-System, ASPLOS 2025)
//   risk-aware  the largest expected loss: tokens since the last save, times the probability that a
//               failure takes the last live replica, times the square root of the age, the
//               snapshots since the save
//
// The weight of age. With u tokens per snapshot and probability p, an expert that is saved every T
// snapshots loses p*u*T/2 on average. For equal bytes, the sum over experts is least if p*u*T^2 is
// equal for all. Taking the largest p*u*T equalises p*u*T, which loses as much as round robin. So
// with stable loads the weight T is the best, and sqrt(T) has most of its gain. If the tokens of
// one snapshot do not predict the next (bursts), any weight loses: T two to four times as much as
// sqrt(T). Figures: docs/decisions/014-fixed-weight-of-age.md.
//
// With every selector, an expert is saved at least every `staleness_max` snapshots: the choice is
// the best set that keeps this possible for all experts at all later snapshots.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "trainer/partial/experts.h"
#include "trainer/placement/layer_slots.h"

namespace moetrain {

enum class Selector : uint8_t { kSequential, kLoadAware, kRiskAware };
inline constexpr Selector kSelectors[] = {Selector::kSequential, Selector::kLoadAware,
                                          Selector::kRiskAware};

// Refusal of the selector `age-aware`, which older trainers accepted.
inline constexpr std::string_view kAgeAwareRemoved =
    "selector age-aware was removed: use risk-aware, which weighs age in every layer, or "
    "load-aware, which never does";

std::string_view selector_name(Selector selector);
// kInvalidArgument for any other word.
Result<Selector> parse_selector(std::string_view name);

struct SelectionOptions {
  Selector selector = Selector::kRiskAware;
  uint32_t k = 1;              // experts to take, 1 .. those of the layer
  uint32_t staleness_max = 0;  // snapshots between two saves of an expert
};

// The default bound: four times that of round robin.
uint32_t default_staleness_max(uint32_t experts, uint32_t k);

// kInvalidArgument, with a valid value, if k is 0 or more than there are experts, or if k at a time
// cannot visit all experts within the bound.
Status check_selection(const SelectionOptions& options, uint32_t experts);

// State of one expert, as input of a selector.
struct ExpertCandidate {
  int64_t unsaved_tokens = 0;   // tokens since its newest version
  uint64_t age = 1;             // snapshots since the one that saved it; 1: the previous one
  double loss_probability = 1;  // that the next failure takes its last live replica
  uint32_t turn = 0;            // its place in the round robin
};

// Number of experts to take now so that options.k per snapshot keep the bound from here on:
// options.k itself, unless earlier snapshots failed or had another bound or a smaller
// k. At most the number of experts.
uint32_t k_within_bound(const SelectionOptions& options,
                        std::span<const ExpertCandidate> candidates);

// Chooses `count` experts of one layer, ascending: options.k, or more now, see
// k_within_bound(); later snapshots keep the bound with options.k each. Ties go to the older
// expert, then to the earlier turn. The options have been checked. An overdue expert
// (earlier snapshots failed, or took fewer) goes first.
std::vector<uint32_t> select_experts(const SelectionOptions& options,
                                     std::span<const ExpertCandidate> candidates, uint32_t count);
inline std::vector<uint32_t> select_experts(const SelectionOptions& options,
                                            std::span<const ExpertCandidate> candidates) {
  return select_experts(options, candidates, options.k);
}

// Returns the state of the expert at a position in the grid.
using CandidateOf = std::function<ExpertCandidate(size_t expert)>;

// The experts that a snapshot takes, over all layers, as positions in the grid, ascending:
// options.k of each layer, or more if the bound demands it.
std::vector<uint32_t> choose_experts(const ExpertGrid& grid, const SelectionOptions& options,
                                     const CandidateOf& candidate_of);

// [expert]: its place in the round robin of this layer. Consecutive places are on different ranks
// as far as the placement allows; layers begin `k` places apart, so that one snapshot's experts
// spread over the ranks. Every expert has a slot.
std::vector<uint32_t> turns(const LayerSlots& slots, uint32_t experts, uint32_t layer, uint32_t k);

}  // namespace moetrain
