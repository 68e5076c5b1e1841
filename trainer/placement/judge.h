// judge: rates any placement: its balance, the failures that it survives, and the state to move to
// reach it. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "trainer/placement/joint_recovery.h"
#include "trainer/placement/policy.h"

namespace moetrain {

struct LayerJudgement {
  std::vector<uint32_t> replicas;  // [expert]: slots that hold it
  std::vector<double> rank_loads;  // [rank]: tokens, if every slot of an expert takes t_e / r_e
  double max_over_mean = 1;        // of rank_loads
  uint32_t domains_min = 0;        // distinct domains of the expert that has fewest
  uint64_t replicas_to_move = 0;   // (rank, expert) held now that were not in `current`
};

struct Judgement {
  std::vector<LayerJudgement> layers;
  double max_over_mean = 1;        // mean over layers
  double max_over_mean_worst = 1;  // of the worst layer
  uint32_t worst_layer = 0;
  // All layers together: k = 1 .. domains - 1 lost domains.
  std::vector<RecoveryAt> recovery;
  uint64_t replicas_to_move = 0;  // of all layers; 0 without `current`
};

// Judged by the loads, domains and current placement of the request, which may be of another step
// than the one it was planned from. kInvalidArgument if the two do not belong together: layers,
// ranks, experts out of range, an expert without a slot.
Result<Judgement> judge(const std::vector<LayerSlots>& placement, const PlacementRequest& request);

// The same without joint recovery, which is what takes time at thousands of ranks.
Result<Judgement> judge_balance(const std::vector<LayerSlots>& placement,
                                const PlacementRequest& request);

// The holders of all experts of all layers, as sets of domains: what joint_recovery() takes.
std::vector<std::vector<uint32_t>> holder_sets(const std::vector<LayerSlots>& placement,
                                               const PlacementRequest& request);

// [rank]: tokens of one layer, every slot of an expert taking t_e / r_e.
std::vector<double> rank_loads(const LayerSlots& slots, const std::vector<uint64_t>& loads);

}  // namespace moetrain
