// Recut: the ranges of sharded experts that a rank holds while its group changes around it.
//
// If ranks join or leave, another number of ranks owns the ranges: every element that changes
// its owner moves once, between peers. If survivors continue, every rank calls, in this order
// and as collectives (recut_plan.h says why a death at any time does no harm):
//
//   is_whole  checks that the present ranks hold every element at one step. If not, a rank was lost
//             with its range, and all ranks return to a view of ckptd; nothing below is called
//   move      each rank fills its new range, and dense parameters that it lacks, checked on arrival
//   commit    all ranks have moved: frees the old ranges. take() gives the new ones to the store
//
// Keeps the ranges that are in no store: those of a group that ranks are about to leave, and those
// that move. Memory (RecutMemory, asserted): a rank's old and new ranges, and the buffers of an
// exchange, 64 MiB. The store's buffers for layers are freed first.
//
// Used from the rank's thread. After a failure the old ranges are as they were.
#pragma once

#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "trainer/elastic/agreement.h"
#include "trainer/elastic/item_exchange.h"
#include "trainer/elastic/recut_plan.h"
#include "trainer/model/model.h"

namespace moetrain {

// Expert tensors of a rank while its range changes, in bytes: at most
// 24*E*L*(elements of the old range + of the new one) + kRecutBufferBytes.
struct RecutMemory {
  uint64_t bytes = 0;
  uint64_t bound = 0;
};

class Recut {
 public:
  // `model` outlives it. `before_change` is called before work is queued that writes to state, or
  // to memory that is about to be freed.
  explicit Recut(
      Model& model, std::function<void()> before_change = [] {})
      : model_(model), before_change_(std::move(before_change)) {}

  // Keeps the ranges of this rank's store, and frees all others.
  void reset();

  // `mine`: this rank's status; its state is ignored if it is behind the others. An interrupted
  // re-cut is completed or undone, on all ranks alike.
  Result<bool> is_whole(Comm& comm, const RankStatus& mine);
  // After is_whole(), once all ranks are at the same step: fills equal ranges of the ranks that
  // stay (empty: all do). `step`: the group's, for messages.
  Status move(Comm& comm, const std::vector<bool>& stays, uint64_t step);
  Status commit(Comm& comm);
  // After commit(): the ranges that this rank holds, in the order of a store.
  std::vector<OwnedRange> take();
  // After is_whole(): the lowest rank that has applied every step.
  uint32_t source() const;
  // By the last move(), between all ranks.
  uint64_t bytes_moved() const { return plan_.moves.bytes; }
  // Memory of the last move(), on this rank.
  const RecutMemory& memory() const { return memory_; }

 private:
  class Items;
  uint64_t elements() const;
  std::span<OwnedRange> held_ranges();
  ElementRange held();
  void take_from_store();
  void release_held();
  uint64_t range_bytes();
  void make_next_ranges();
  void settle_interrupted(bool adopts);
  void fill_from_held(const ElementRange& wanted);

  Model& model_;
  const std::function<void()> before_change_;
  // Out of the store: what this rank holds, by (layer, expert).
  std::vector<OwnedRange> pool_;
  bool in_pool_ = false;
  std::vector<OwnedRange> next_;
  bool filled_ = false;  // next_ is complete
  bool stays_ = false;   // the new range is the old one: next_ is empty
  ElementRange wanted_;
  // Results for the epoch that is being begun.
  CutAgreement agreement_;
  std::vector<bool> has_state_;  // by rank
  RecutPlan plan_;
  RecutMemory memory_;
  ItemExchange exchange_;
};

}  // namespace moetrain
