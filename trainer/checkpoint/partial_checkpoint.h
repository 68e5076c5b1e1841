// PartialCheckpoint: decides the contents of each snapshot of a run, and counts recovery losses.
//
// Every rank has one and feeds it the same numbers, so all ranks plan alike. No I/O; the algorithms
// are in trainer/partial.
//
// Dense units and the trainer unit are in every snapshot. A snapshot takes K experts of each layer,
// except if it must be full: the first snapshot (a view that lacks a unit is useless) and the last
// one of a run (an export wants no stale expert).
//
// Two levels (MoC-System, ASPLOS 2025): beside the K written experts, more experts can be kept in
// ckptd's memory: those absent from snapshots for longest, by the same selector. They are fresher
// than the versions on disk and are lost with the daemon. So an expert has two ages: the age of its
// newest durable version decides the next write, that of its newest version the next copy.
//
// If every recovery is a restart, all ranks rewind to one view, with or without replicas: all
// experts run the same risk, and tokens and age decide. If survivors continue, an expert is lost
// only with its last holder; the selector knows the holders and their failure domains.
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
#include "trainer/partial/dynamic_k.h"
#include "trainer/partial/plt.h"
#include "trainer/partial/save_ledger.h"
#include "trainer/partial/selector.h"
#include "trainer/partial/sharding.h"
#include "trainer/placement/compute_placement.h"
#include "trainer/placement/domains.h"
#include "trainer/placement/ownership.h"

namespace moetrain {

// The expert units that may be left out; all other units are in every snapshot.
enum class PartialParts : uint8_t { kWeights, kOptimizer, kBoth };
std::string_view partial_parts_name(PartialParts parts);
Result<PartialParts> parse_partial_parts(std::string_view name);

inline constexpr uint32_t kAllExperts = UINT32_MAX;

struct PartialOptions {
  uint32_t k = 0;       // experts of each layer per checkpoint; 0: all
  bool k_auto = false;  // k is 0, and set_k() sets the number repeatedly
  // Experts of each layer per snapshot, including those in memory only. 0: none in memory only,
  // kAllExperts: all. Not less than k.
  uint32_t k_snapshot = 0;
  bool k_snapshot_auto = false;  // k_snapshot is kAllExperts, and set_k_snapshot() sets the number
  Selector selector = Selector::kRiskAware;
  PartialParts parts = PartialParts::kBoth;
  uint32_t staleness_max = 0;  // snapshots between two saves of an expert; 0: the default
  double plt_budget = kPltBudgetDefault;
  DenseSharding dense = DenseSharding::kBytes;
  bool survivors_continue = false;  // recoveries take replicas from the survivors

  bool is_partial() const { return k != 0 || k_auto; }
};

// kInvalidArgument, naming the flag, if the options are impossible with this many experts.
Status validate(const PartialOptions& options, uint32_t experts);

// State of a partial run that the trainer unit stores.
struct PartialState {
  uint64_t snapshots = 0;  // taken in this lineage, this one included
  uint32_t k = 0;          // of the newest snapshot (trainer/partial/dynamic_k.h)
  uint32_t k_asked = 0;    // PartialOptions::k when it was saved
  PltMeter::Lost lost;     // empty: nothing lost
  // The newest recovery that lost tokens to a K below N: that K, and the tokens. 0: none.
  uint32_t loss_k = 0;
  int64_t loss_tokens = 0;
  // The newest recovery with a loss: its tokens since the last snapshot, and its experts.
  int64_t loss_since = 0;
  uint32_t loss_experts = 0;
  bool operator==(const PartialState&) const = default;
};

// Progress of the experts; all counts [layers * experts] since the run began.
struct ExpertProgress {
  std::span<const int64_t> routed;
  std::span<const int64_t> updates;
};

// One rank's full planning state, for a rank that joins during the run.
struct PartialHandover {
  PartialState state;
  std::vector<SaveLedger::Saved> saved;  // [layers * experts]: durable versions
  std::vector<SaveLedger::Saved> kept;   // the same of versions at either level
  std::vector<int64_t> routed_before;    // the same of the counts as of the last snapshot
  // The newest snapshots, at most SaveLedger::kUndoMax: some may be in flight, and may fail.
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
  int64_t since = 0;  // part of the tokens: those after the last snapshot
};

class PartialCheckpoint {
 public:
  // The units and the placement outlive it. The options have been validated; the placement is of
  // the units' model. `experts`: which rank contributes which bytes of an expert.
  PartialCheckpoint(const std::vector<StateUnit>& units, const ComputePlacement& placement,
                    const PartialOptions& options, ExpertState experts = ExpertState::kReplicated);

  // Starts a new run.
  void start();
  // Resumes a run from a view: its trainer unit and the versions of its experts. kCorrupt if these
  // contradict each other; nothing is changed then. in_memory: nonzero for experts (positions in
  // the grid) with a version that is on no disk; empty: none. Their versions on disk are older, by
  // an unknown amount: they are saved first.
  Result<RecoveryLoss> resume(const PartialState& saved, std::span<const int64_t> routed,
                              const ExpertStamps& stamps, std::span<const int64_t> in_memory = {});

  // Rolls back these experts (positions in the grid) to their newest versions, older than the rest;
  // the run does not rewind. `versions` holds their stamps: the older of an expert's two counts
  // applies. `updates` gets the AdamW steps of the restored moments. Every rank calls this with the
  // same numbers. An expert with zero stamps was never saved, and is in its initial state.
  // kCorrupt if a version cannot be of this history;
  // nothing is changed then.
  Result<RecoveryLoss> roll_back(std::span<const uint32_t> experts, const ExpertStamps& versions,
                                 std::span<const int64_t> routed, std::span<int64_t> updates,
                                 std::span<const int64_t> in_memory = {});

  // Passes the state to joining ranks during the run. Replaced versions of snapshots in
  // flight are not part of it: if such a snapshot fails, its experts count as never saved, and the
  // next snapshot is full. kCorrupt, and nothing changed, if the counts are not of this model.
  PartialHandover handover() const;
  Status take_over(const PartialHandover& handover, std::span<const int64_t> routed);

  struct Plan {
    std::vector<uint32_t> units;         // all of the snapshot's
    std::vector<uint32_t> memory_units;  // units that are not written
    std::vector<ckpt_fragment> fragments;
    std::vector<uint32_t> experts;         // written, as positions in the grid
    std::vector<uint32_t> memory_experts;  // not written
  };
  // Plans the next snapshot, at `step`, and stamps its experts. Takes more than K experts of a
  // layer if the bound on staleness demands it: the bound counts snapshots and, with an interval,
  // steps, also after failed snapshots and after a resume with other settings.
  Plan next(uint64_t step, const ExpertProgress& progress, bool full, ExpertStamps& stamps);
  // domain_of_rank[rank] of the placement: its failure domain, as in RankGroup. Call whenever the
  // ranks change. Before the first call, or if empty, each rank fails by itself.
  void set_domains(std::vector<uint32_t> domain_of_rank) {
    domain_of_rank_ = std::move(domain_of_rank);
  }
  // Longest expected distance between snapshots, in steps: the bound is staleness_max() times that,
  // in steps. 0 (initially): no bound in steps.
  void set_interval(uint64_t steps) { interval_ = steps; }
  // Experts of each layer that the next snapshots write, with `k_auto`. At least 1. Without k_auto,
  // K follows the budget from snapshot to snapshot.
  void set_k(uint32_t k);
  // Same, for copied experts, with `k_snapshot_auto`. 0 (after start(), resume() and take_over()):
  // no more than are written.
  void set_k_snapshot(uint32_t k);
  // The snapshot of this step has failed: its experts are due again.
  void failed(uint64_t step);
  // True if failed(step) would change anything, as far as is known here.
  bool tracks_step(uint64_t step) const { return number_of_step_.contains(step); }

  // True if a partial snapshot may leave the unit out.
  bool may_omit(const StateUnit& unit) const;
  PartialState state() const;
  uint32_t k() const { return k_; }
  // Experts of each layer per snapshot: grows with k().
  uint32_t k_snapshot() const;
  uint32_t staleness_max() const { return selection().staleness_max; }
  double plt(std::span<const int64_t> routed) const { return meter_.plt(routed); }
  const PltMeter& meter() const { return meter_; }
  // The newest loss, scaled to the next recovery; K is chosen from it.
  Recovery expected_loss(std::span<const int64_t> routed) const;
  // Lost tokens of both kinds of recovery, [layers * experts]; empty if nothing was lost.
  std::vector<int64_t> lost() const;

 private:
  struct Now {
    uint64_t step = 0;
    std::span<const int64_t> routed;
  };
  // Per expert, from the placement, if k experts of a layer are taken at a time.
  struct Placed {
    std::vector<uint32_t> turn;  // its place in the round robin
    std::vector<double> risk;    // probability that the next failure takes its last replica
  };
  Placed placed(uint32_t k) const;
  SelectionOptions selection() const;
  std::vector<uint32_t> choose(const Now& now) const;
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
  // Chooses the next K, after a recovery of this many experts.
  void recovered(uint32_t k, const RecoveryLoss& loss, size_t experts,
                 std::span<const int64_t> routed);
  // K that keeps the budget, given the losses so far.
  uint32_t k_of_budget(uint32_t asked, std::span<const int64_t> routed) const;
  // Expected experts of the next recovery, relative to the last one.
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
  uint64_t snapshots_ = 0;
  uint32_t k_ = 0;
  uint32_t k_snapshot_ = 0;  // with k_snapshot_auto
  uint32_t loss_k_ = 0;      // PartialState
  int64_t loss_tokens_ = 0;
  int64_t loss_since_ = 0;
  uint32_t loss_experts_ = 0;
  std::vector<int64_t> routed_before_;  // as of the last snapshot, or of the run's start
  uint64_t interval_ = 0;
  std::map<uint64_t, uint64_t> number_of_step_;  // of recent snapshots
};

}  // namespace moetrain
