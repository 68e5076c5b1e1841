// LiveState: a rank's state while its group changes around it. No step that a survivor has applied
// is lost, and no expert that anybody still holds, whatever dies when.
//
// In an epoch that goes on, every rank calls, in this order and as collectives:
//
//   agree    all come to the same step (agreement.h) and know the same (handover.h)
//   plan     who holds what is exchanged; the placement for this group, and who sends what to whom:
//            kFailedPrecondition if the ranks have planned differently
//   move     state goes from those who hold it to those who need it, checked on arrival: what did
//            not come as it was sent fails with kAborted, as a lost member does, since all who had
//            it still have it; the third such failure in a row with kCorrupt
//   commit   when everybody has what it needs, and not before, what nobody needs is released
//   (the caller restores what nobody held: lost_here())
//   settle   when everybody has restored: what that lost is counted, everywhere alike
//
// A group that stays together moves experts in the same way, with stay() in place of agree().
//
// Any of them fails when a member is lost; the next epoch begins again with agree. What a rank
// holds stays held until commit: by then all receivers hold it, too. An expert that came from a
// checkpoint counts as held only after settle.
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

// By held[rank][expert of the grid], deterministically: the placement of so many ranks.
using PlanPlacement =
    std::function<Result<ComputePlacement>(uint32_t ranks, const std::vector<int64_t>& routed,
                                           const std::vector<std::vector<bool>>& held)>;

class LiveState {
 public:
  // All outlive it.
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
    // Called before anything is queued that writes to the model's state, or to memory that it gives
    // up: on a GPU others may still read there.
    std::function<void()> before_change = [] {};
  };
  explicit LiveState(const Parts& parts) : parts_(parts) {}

  // The rank has all of its placement's state: it was restored, or the seed has given it, or, where
  // experts are sharded, other ranks have (recut.h).
  void is_whole();
  // The group went on without this rank: what it holds may be of the same step, and still not be
  // what the others made of it since. It comes back as one that is new.
  void forget();
  // Between the barrier's two sides.
  void set_pending(PendingStep pending) { pending_ = std::move(pending); }
  PendingStep take_pending();
  bool has_state() const { return has_state_; }
  // The stand that agree() tells the others.
  RankStand stand() const;

  Result<Agreement> agree(Comm& comm);
  // Instead of agree(), at a step boundary: so many ranks stay together, all with their state.
  void stay(uint32_t ranks);
  // The step that agree() made this rank apply after the others, if it did.
  const std::optional<StepResult>& late_step() const { return late_step_; }
  Status plan(Comm& comm, const PlanPlacement& planner);
  Status move(Comm& comm);
  Status commit(Comm& comm);
  // Experts of the grid that nobody held: all of them, and those that this rank now has room for
  // and must restore, stamps included.
  const std::vector<uint32_t>& lost() const { return lost_; }
  const std::set<uint32_t>& lost_here() const { return missing_; }
  struct Settled {
    int64_t lost_tokens = 0;
    uint64_t bytes_moved = 0;  // between all ranks
    // Of lost(), in its order: the step of the version that came back, of weights and moments the
    // older; -1: there was none, it begins again from the seed.
    std::vector<int64_t> versions;
  };
  // `in_memory`: of lost_here() those that came back from versions which no disk has.
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
  uint64_t changes_ = 0;  // RankStand::changes
  std::optional<PendingStep> pending_;
  std::optional<StepResult> late_step_;
  // Out of the model's store while they move; else empty.
  std::vector<OwnedRange> pool_;
  bool taken_out_ = false;
  std::set<uint32_t> missing_;  // in the store, but without content
  // Results for the epoch that is being begun.
  Agreement agreement_;
  ComputePlacement next_;
  MigrationPlan plan_;
  std::vector<uint32_t> lost_;
  ItemExchange exchange_;
};

}  // namespace moetrain
