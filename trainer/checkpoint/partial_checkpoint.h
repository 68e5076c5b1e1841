// PartialCheckpoint: what each snapshot of a run takes, and what each recovery lost.
//
// Every rank has one and feeds it the same numbers, so all ranks plan alike. No I/O; what it
// decides with is in trainer/partial.
//
// Dense units and the trainer unit are in every snapshot. Of the experts a snapshot takes K of each
// layer, except where it has to be full: the first one (a view that misses a unit is of no use) and
// the last one of a run (whoever exports it wants no stale expert).
//
// Two levels (MoC-System, ASPLOS 2025): beside the K experts that are written, more can be kept in
// ckptd's memory, those that were in no snapshot for longest by the same selector. They are fresher
// than what a disk has and are lost with the daemon. So an expert has two ages: that of its newest
// durable version decides what is written next, that of its newest version what is kept.
//
// Where every recovery is a restart, all ranks rewind to one view, replicas or not: all experts run
// the same risk, and risk-aware is load-aware. Where survivors go on, an expert is lost only
// with its last holder, and the selector knows the holders, and which of them die together.
#pragma once

#include <ckpt/ckpt.h>

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "formats/base/result.h"
#include "trainer/checkpoint/expert_stamps.h"
#include "trainer/checkpoint/units.h"
#include "trainer/partial/age_trial.h"
#include "trainer/partial/dynamic_k.h"
#include "trainer/partial/plt.h"
#include "trainer/partial/save_ledger.h"
#include "trainer/partial/selector.h"
#include "trainer/partial/sharding.h"
#include "trainer/placement/compute_placement.h"
#include "trainer/placement/domains.h"
#include "trainer/placement/ownership.h"

namespace moetrain {

// Which units of an expert the choice is about; the others are in every snapshot.
enum class PartialParts : uint8_t { kWeights, kOptimizer, kBoth };
std::string_view partial_parts_name(PartialParts parts);
Result<PartialParts> parse_partial_parts(std::string_view name);

inline constexpr uint32_t kAllExperts = UINT32_MAX;

struct PartialOptions {
  uint32_t k = 0;       // experts of each layer per checkpoint; 0: all
  bool k_auto = false;  // k is 0, and set_k() tells how many, again and again
  // Experts of each layer per snapshot, those that stay in memory included: 0: none stays,
  // kAllExperts: all. Not less than k.
  uint32_t k_snapshot = 0;
  bool k_snapshot_auto = false;  // k_snapshot is kAllExperts, and set_k_snapshot() tells how many
  Selector selector = Selector::kRiskAware;
  PartialParts parts = PartialParts::kBoth;
  uint32_t staleness_max = 0;  // snapshots from one save of an expert to its next; 0: the default
  double plt_budget = kPltBudgetDefault;
  DenseSharding dense = DenseSharding::kBytes;
  bool survivors_go_on = false;  // recoveries take replicas from whoever is left

  bool is_partial() const { return k != 0 || k_auto; }
};

// kInvalidArgument, naming the flag, for what cannot be with so many experts in a layer.
Status validate(const PartialOptions& options, uint32_t experts);

// What the trainer unit keeps.
struct PartialState {
  uint64_t snapshots = 0;  // taken in this line of history, this one included
  uint32_t k = 0;          // of the newest snapshot (trainer/partial/dynamic_k.h)
  uint32_t k_asked = 0;    // PartialOptions::k when it was saved
  PltMeter::Lost lost;     // empty: nothing
  // The newest recovery that lost tokens to a K below N: that K, and the tokens. 0: none.
  uint32_t loss_k = 0;
  int64_t loss_tokens = 0;
  // The newest that lost any: those that came after the last snapshot, of so many experts.
  int64_t loss_since = 0;
  uint32_t loss_experts = 0;
  AgeTrialScore trial;  // of selectors that weigh age
  bool operator==(const PartialState&) const = default;
};

// How far the experts have come, all counts [layers * experts] since the run began.
struct ExpertProgress {
  std::span<const int64_t> routed;
  std::span<const int64_t> updates;
};

// All that one rank's planning rests on, for a rank that joins while the run goes on.
struct PartialHandover {
  PartialState state;
  std::vector<SaveLedger::Saved> saved;  // [layers * experts]: durable versions
  std::vector<SaveLedger::Saved> kept;   // the same of versions at either level
  std::vector<int64_t> routed_before;    // the same of the counts as of the last snapshot
  // The newest snapshots, SaveLedger::kUndoMax at most: some may be on their way, and may fail.
  struct Recent {
    uint64_t step = 0;
    uint64_t snapshot = 0;  // its number
    bool operator==(const Recent&) const = default;
  };
  std::vector<Recent> recent;  // ascending by step
  bool operator==(const PartialHandover&) const = default;
};

struct RecoveryLoss {
  int64_t tokens = 0;
  double plt = 0;     // of this recovery alone
  int64_t since = 0;  // of the tokens, those that came after the last snapshot
};

class PartialCheckpoint {
 public:
  // The units and the placement outlive it. The options have been validated, the placement is of
  // the units' model. `experts`: who contributes which bytes of an expert.
  PartialCheckpoint(const std::vector<StateUnit>& units, const ComputePlacement& placement,
                    const PartialOptions& options, ExpertState experts = ExpertState::kReplicated);

  // A run begins.
  void start();
  // A run goes on from a view: what its trainer unit and the versions of its experts say.
  // kCorrupt if these contradict each other; nothing changed then.
  // in_memory: not 0 for experts (positions in the grid) with a version that no disk has; empty:
  // none. What the disk has of them is older, nobody knows how much: they are due first.
  Result<RecoveryLoss> resume(const PartialState& saved, std::span<const int64_t> routed,
                              const ExpertStamps& stamps, std::span<const int64_t> in_memory = {});

  // These experts (positions in the grid) came back from their newest versions, older than the
  // rest, which went on: the run does not rewind. `versions` holds their stamps, of which the older
  // of an expert's two counts; `updates` gets the AdamW steps of the moments that came back. Every
  // rank does this with the same numbers. One whose stamps are zero was never saved, and is as the
  // seed made it. kCorrupt if a version cannot be one of this history;
  // nothing changed then.
  Result<RecoveryLoss> roll_back(std::span<const uint32_t> experts, const ExpertStamps& versions,
                                 std::span<const int64_t> routed, std::span<int64_t> updates,
                                 std::span<const int64_t> in_memory = {});

  // The run goes on, and ranks take over what another one has. Of snapshots that are on their way
  // nobody remembers what they replaced: if one fails, what it has saved counts as never saved, and
  // the next snapshot is full. kCorrupt, and nothing changed, if these are no counts of this model.
  PartialHandover handover() const;
  Status take_over(const PartialHandover& handover, std::span<const int64_t> routed);

  struct Plan {
    std::vector<uint32_t> units;         // all of the snapshot's
    std::vector<uint32_t> memory_units;  // those of them that are not written
    std::vector<ckpt_fragment> fragments;
    std::vector<uint32_t> experts;         // written, as positions in the grid
    std::vector<uint32_t> memory_experts;  // not written
  };
  // The next snapshot, at `step`. Stamps what it takes. Takes more than K experts of a layer where
  // the bound on staleness demands it: it holds in snapshots and, with an interval, in steps, also
  // after snapshots that failed and after a resume with other numbers.
  Plan next(uint64_t step, const ExpertProgress& progress, bool full, ExpertStamps& stamps);
  // [rank] of the placement: its failure domain, as in RankGroup. To be told whenever the ranks
  // change; before, and where it is empty, each rank fails by itself.
  void set_domains(std::vector<uint32_t> domain_of_rank) {
    domain_of_rank_ = std::move(domain_of_rank);
  }
  // At most so many steps from one snapshot to the next, as far as anybody can tell: the bound is
  // staleness_max() times that in steps. 0, as it is in the beginning: there is none in steps.
  void set_interval(uint64_t steps) { interval_ = steps; }
  // How many experts of each layer the next snapshots take, with `k_auto`. At least 1. Without, K
  // follows the budget from snapshot to snapshot.
  void set_k(uint32_t k);
  // The same of those that are copied, with `k_snapshot_auto`. 0, as it is after start(), resume()
  // and take_over(): no more than are written.
  void set_k_snapshot(uint32_t k);
  // The snapshot of this step is not to be had: its experts are due again.
  void failed(uint64_t step);
  // Would that change anything, as far as is known here?
  bool counts_on(uint64_t step) const { return number_of_step_.contains(step); }

  // Is the unit one that a partial snapshot may leave out?
  bool is_chosen_about(const StateUnit& unit) const;
  PartialState state() const;
  uint32_t k() const { return k_; }
  // Experts of each layer per snapshot: grows as k() does.
  uint32_t k_snapshot() const;
  uint32_t staleness_max() const { return selection().staleness_max; }
  double plt(std::span<const int64_t> routed) const { return meter_.plt(routed); }
  const PltMeter& meter() const { return meter_; }
  // The newest loss as the next one would come to: what K follows from.
  Recovery expected_loss(std::span<const int64_t> routed) const;
  // Of both kinds, [layers * experts]; empty where nothing was lost.
  std::vector<int64_t> lost() const;

 private:
  struct Now {
    uint64_t step = 0;
    std::span<const int64_t> routed;
  };
  // What follows from the placement, of each expert, where k of a layer are taken at a time.
  struct Placed {
    std::vector<uint32_t> turn;  // its place in the round robin
    std::vector<double> risk;    // that the next failure takes its last replica
  };
  Placed placed(uint32_t k) const;
  SelectionOptions selection() const;
  std::vector<uint32_t> choose(const Now& now, std::span<const int64_t> held);
  std::vector<uint32_t> choose_more(const std::vector<uint32_t>& written, const Now& now) const;
  ExpertCandidate candidate(size_t expert, const SaveLedger& ledger, const Now& now,
                            const Placed& at) const;
  std::vector<uint32_t> units_with(const std::vector<uint32_t>& experts) const;
  void add_memory_units(Plan& plan) const;
  void stamp(uint64_t step, const std::vector<uint32_t>& units, const std::vector<int64_t>& held,
             std::span<const int64_t> updates, ExpertStamps& stamps) const;
  uint32_t experts_asked() const;
  Result<SaveLedger::Saved> version_of(size_t expert, const ExpertStamps& stamps,
                                       uint64_t snapshots) const;
  // The next K, after a recovery of so many experts.
  void recovered(uint32_t k, const RecoveryLoss& loss, size_t experts,
                 std::span<const int64_t> routed);
  // K as the budget demands it, of what was lost so far.
  uint32_t k_of_budget(uint32_t asked, std::span<const int64_t> routed) const;
  // How many times as many experts the next recovery has to bring back as the last one had.
  double growth_of_loss() const;
  RankGroup group() const;

  const std::vector<StateUnit>& units_;
  const ComputePlacement& placement_;
  const PartialOptions options_;
  const ExpertState experts_;
  const ExpertGrid grid_;
  std::vector<uint32_t> domain_of_rank_;
  PltMeter meter_;
  SaveLedger ledger_;         // of durable versions
  SaveLedger memory_ledger_;  // of versions at either level
  AgeTrial trial_;            // of durable versions
  uint64_t snapshots_ = 0;
  uint32_t k_ = 0;
  uint32_t k_snapshot_ = 0;  // with k_snapshot_auto
  uint32_t loss_k_ = 0;      // PartialState
  int64_t loss_tokens_ = 0;
  int64_t loss_since_ = 0;
  uint32_t loss_experts_ = 0;
  std::vector<int64_t> routed_before_;  // as of the last snapshot, or as the run began
  uint64_t interval_ = 0;
  std::map<uint64_t, uint64_t> number_of_step_;  // of recent snapshots
};

}  // namespace moetrain
