// The plan of a re-cut: what moves when another number of ranks owns the ranges of sharded experts.
// Pure.
//
// Every rank owns the same range of every expert. A re-cut has two phases, so that a death at any
// time leaves every range whole or not at all: first each rank fills its new range beside its old
// one, then all meet in a barrier, then the old ranges go. A rank that leaves the barrier may have
// released its old range; every other rank has entered it, and its new range is complete.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "trainer/elastic/migration_plan.h"
#include "trainer/placement/ownership.h"

namespace moetrain {

// The part of every expert that a rank holds when an epoch begins.
struct CutStatus {
  ElementRange held;    // empty: no valid range
  bool filled = false;  // the group was lost in a re-cut's barrier: `next` is complete, too
  ElementRange next;
  bool operator==(const CutStatus&) const = default;
};
inline constexpr size_t kCutStatusValues = 5;
std::vector<int64_t> to_values(const CutStatus& status);
CutStatus cut_status_from(std::span<const int64_t> values);

// The parts that the ranks of a group hold together.
struct CutAgreement {
  bool whole = false;              // each element is held by some rank
  bool adopts = false;             // ranks that have filled `next` release `held`; else `next`
  std::vector<ElementRange> held;  // by rank, after that
};
// The same on every rank. `statuses`, by rank: at the same step, ranks without valid state hold
// nothing. Old ranges count first, so that a re-cut that no rank has completed is undone.
CutAgreement agree_on_cut(std::span<const CutStatus> statuses, uint64_t elements);

// By rank: part n of the ranks that stay, in their order; empty for a rank that leaves. `stays`
// empty: all `ranks` stay.
std::vector<ElementRange> cut_for(const std::vector<bool>& stays, uint32_t ranks,
                                  uint64_t elements);

// A part of a tensor that is moved in one go.
struct RecutPiece {
  uint32_t of = 0;  // dense parameter; of experts: 0, as all are cut alike
  ElementRange elements;
  bool operator==(const RecutPiece&) const = default;
};

struct RecutPlan {
  // Items of the migration plan: first `expert_pieces` x experts (piece i of expert e is item
  // i * experts + e), then `dense_pieces`.
  std::vector<RecutPiece> expert_pieces;
  std::vector<RecutPiece> dense_pieces;
  MigrationPlan moves;
};

// Send and receive buffer of a rank together.
inline constexpr uint64_t kRecutBufferBytes = 64u << 20;

struct RecutRequest {
  std::vector<ElementRange> held;    // by rank; together they cover every element
  std::vector<ElementRange> wanted;  // by rank
  uint32_t experts = 0;              // of all layers together
  std::vector<uint64_t> dense;       // elements of each dense parameter
  std::vector<bool> dense_held;      // by rank: has all of them; the others want them
  uint64_t bytes_per_element = 0;    // of one element's weight and moments
  uint64_t bytes_per_piece = 0;      // in a buffer, beside its elements
  uint64_t buffer_bytes = kRecutBufferBytes;
};
// The same on every rank. Each element that a rank wants and does not hold comes from one rank that
// holds it, once. No round sends or receives more than half of buffer_bytes on any rank, unless a
// piece of one element is larger. moves.bytes counts elements only.
RecutPlan plan_recut(const RecutRequest& request);

}  // namespace moetrain
