// Ownership: which rank holds which part of which expert's state (weights and moments). A value.
//
//   replicated  whole experts: every rank that computes an expert holds all of its state. Where one
//               rank must act for all holders, the lowest one does.
//   sharded     rank n of N holds elements [n*S/N, (n+1)*S/N) of every expert, whichever rank
//               computes it. LAER-MoE's fully sharded experts (arXiv 2602.11686), without its rule
//               that N divides S.
//
// S is the number of elements of an expert's w1, w2 and w3, one after the other. ComputePlacement
// (compute_placement.h) says which ranks compute an expert. Checkpoint plans, the gradient norm and
// migration ask Ownership; dispatch asks ComputePlacement.
#pragma once

#include <cstdint>
#include <vector>

#include "trainer/placement/compute_placement.h"

namespace moetrain {

enum class ExpertState : uint8_t { kReplicated, kSharded };

// Elements [begin, end) of one expert.
struct ElementRange {
  uint64_t begin = 0;
  uint64_t end = 0;
  uint64_t size() const { return end - begin; }
  bool empty() const { return begin == end; }
  bool operator==(const ElementRange&) const = default;
};

// Part n of N of so many elements: [n*elements/N, (n+1)*elements/N). Parts differ by at most one
// element and cover each element once.
ElementRange part_of(uint64_t elements, uint32_t n, uint32_t parts);

class Ownership {
 public:
  Ownership() = default;  // of no experts
  // The placement is valid.
  static Ownership replicated(const ComputePlacement& placement);
  static Ownership sharded(uint32_t layers, uint32_t experts, uint32_t ranks);

  ExpertState state() const { return state_; }
  uint32_t ranks() const { return ranks_; }
  uint32_t layers() const { return layers_; }
  uint32_t experts() const { return experts_; }

  // The ranks that hold a part of the expert's state, ascending.
  std::vector<uint32_t> holders(uint32_t layer, uint32_t expert) const;
  bool holds(uint32_t rank, uint32_t layer, uint32_t expert) const;

  // The part that the rank holds of an expert of `elements` elements; empty if it holds none.
  ElementRange held(uint32_t rank, uint32_t layer, uint32_t expert, uint64_t elements) const;
  // The part that this rank alone acts for, such as counting it in the global gradient norm. Over
  // all ranks these parts cover each element once. With replicated state: the whole expert for its
  // lowest holder, nothing for the others.
  ElementRange counted(uint32_t rank, uint32_t layer, uint32_t expert, uint64_t elements) const;

  bool operator==(const Ownership&) const = default;

 private:
  ExpertState state_ = ExpertState::kReplicated;
  uint32_t ranks_ = 0;
  uint32_t layers_ = 0;
  uint32_t experts_ = 0;
  // Replicated: [layer][expert]: its holders, ascending. Sharded: empty.
  std::vector<std::vector<std::vector<uint32_t>>> holders_;
};

// The ownership of a group that computes by this (valid) placement.
Ownership make_ownership(ExpertState state, const ComputePlacement& placement);

}  // namespace moetrain
