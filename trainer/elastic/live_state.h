// LiveState: a rank's state during membership changes. No failure, at any time, loses a step that a
// survivor has applied, or an expert that a survivor holds.
//
// In an epoch in which survivors continue, every rank calls, in this order and as collectives:
//
//   agree    all ranks reach the same step (agreement.h) and the same knowledge (handover.h)
//   plan     ranks exchange their holdings and compute the placement and the moves:
//            kFailedPrecondition if the ranks have planned differently
//   move     state goes from holders to ranks that need it, and is checked on arrival. A mismatch
//            fails with kAborted, like a lost member, since all holders still have the state; the
//            third such failure in a row fails with kCorrupt
//   commit   once every rank has all that it needs, unneeded state is released
//   (the caller restores experts that no rank held: lost_here())
//   settle   once every rank has restored: the loss is counted, the same on all ranks
//
// A group without changes moves experts in the same way; agree_unchanged() replaces agree().
//
// Each call fails if a member is lost; the next epoch begins again with agree. A rank keeps what it
// holds until commit: by then all receivers hold it, too. An expert restored from a checkpoint
// counts as held only after settle.
//
// Used from the rank's thread. After a failure all parts stay usable.
#pragma once

#include <functional>
#include <optional>
#include <set>
#include <vector>

#include "trainer/elastic/agreement.h"
#include "trainer/elastic/handover.h"
#include "trainer/elastic/item_exchange.h"
#include "trainer/elastic/migration_plan.h"

namespace moetrain {

// Computes the placement for `ranks` ranks from held[rank][expert of the grid]; deterministic.
using PlanPlacement =
    std::function<Result<ComputePlacement>(uint32_t ranks, const std::vector<int64_t>& routed,
                                           const std::vector<std::vector<bool>>& held)>;

class LiveState {
 public:
  // All must outlive LiveState.
  struct Parts {
    Model& model;
    Trainer& trainer;
    Progress& progress;
    PartialCheckpoint& partial;
    Pacer& pacer;
    ExpertStamps& stamps;
    ComputePlacement& placement;
    uint64_t& saved_step;
    float& last_loss;
    // Called before queuing writes to the model's state, or to memory that the model releases: on a
    // GPU, snapshots may still read there.
    std::function<void()> before_change = [] {};
  };
  explicit LiveState(const Parts& parts) : parts_(parts) {}

  // Marks the state as complete for its placement: it was restored, or initialised from the seed,
  // or, if experts are sharded, other ranks have all of it (recut.h).
  void is_whole();
  // The group continued without this rank: its state may be of the same step, and still differ from
  // the others' state. The rank rejoins as a new one.
  void forget();
  // Called between the barrier's two sides.
  void set_pending(PendingStep pending) { pending_ = std::move(pending); }
  PendingStep take_pending();
  bool has_state() const { return has_state_; }
  // The status that agree() sends to the others.
  RankStatus status() const;

  Result<Agreement> agree(Comm& comm);
  // Replaces agree() at a step boundary: this many ranks stay, all with their state.
  void agree_unchanged(uint32_t ranks);
  // The step that agree() made this rank apply after the others, if any.
  const std::optional<StepResult>& late_step() const { return late_step_; }
  Status plan(Comm& comm, const PlanPlacement& planner);
  Status move(Comm& comm);
  Status commit(Comm& comm);
  // Experts of the grid that no rank held: all of them, and those now placed on this rank, which
  // must restore them, stamps included.
  const std::vector<uint32_t>& lost() const { return lost_; }
  const std::set<uint32_t>& lost_here() const { return missing_; }
  struct Settled {
    int64_t lost_tokens = 0;
    uint64_t bytes_moved = 0;  // between all ranks
    // By lost(): the step of the restored version, the older of weights and moments; -1: there was
    // no version, and the expert starts again from the seed.
    std::vector<int64_t> versions;
  };
  // `in_memory`: experts of lost_here() restored from versions that are on no disk.
  Result<Settled> settle(Comm& comm, const std::set<uint32_t>& in_memory = {});

 private:
  class Items;
  ExpertGrid grid() const;
  Ownership next_ownership() const;
  std::vector<bool> held() const;
  void take_out();
  Status check_same_plan(Comm& comm) const;
  WeightState& state_of(uint32_t item);

  const Parts parts_;
  bool has_state_ = false;
  uint64_t changes_ = 0;  // RankStatus::changes
  std::optional<PendingStep> pending_;
  std::optional<StepResult> late_step_;
  // Experts outside of the model's store during a move; else empty.
  std::vector<OwnedRange> pool_;
  bool taken_out_ = false;
  std::set<uint32_t> missing_;  // in the store, but without content
  // Results for the epoch that is beginning.
  Agreement agreement_;
  ComputePlacement next_;
  MigrationPlan plan_;
  std::vector<uint32_t> lost_;
  ItemExchange exchange_;
};

}  // namespace moetrain
