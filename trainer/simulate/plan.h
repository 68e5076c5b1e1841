// Plan: a placement of all layers over the nodes of one group, indexed for the simulator.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "trainer/placement/policy.h"
#include "trainer/simulate/load_model.h"

namespace moetrain::simulate {

// Node position p of a group has the ranks p * ranks_per_node and following. Experts of all layers
// are numbered as in ExpertGrid.
struct Plan {
  uint32_t nodes = 0;
  uint32_t ranks = 0;
  uint32_t slots = 0;  // of a rank
  uint32_t epoch = 0;  // whose loads it was made for
  std::vector<LayerSlots> layers;
  std::vector<std::vector<uint32_t>> holders;  // [expert]: node positions, ascending, each once
  std::vector<std::vector<uint32_t>> held;     // [position]: experts, ascending, each once
};

// [layer]: largest load of a rank over the mean; a replica takes its part of an expert's tokens.
std::vector<double> imbalance(const Plan& plan, const std::vector<std::vector<uint64_t>>& loads);

// Makes plans, and remembers them: systems and intervals are tried many times on the same cluster.
class Planner {
 public:
  // Both must outlive it.
  Planner(const CostModel& model, const LoadModel& load) : model_(model), load_(load) {}

  // One classic expert parallel group.
  Result<std::shared_ptr<const Plan>> expert_parallel();
  // `nodes` nodes with slots_per_rank, for the loads of `epoch`. f is what they can have, at most
  // replicas_min. kInvalidArgument if they cannot hold every expert.
  Result<std::shared_ptr<const Plan>> elastic(PolicyName policy, uint32_t nodes, uint32_t epoch);

 private:
  Result<std::shared_ptr<const Plan>> make(PolicyName policy, uint32_t nodes, uint32_t slots,
                                           uint32_t epoch);
  const CostModel& model_;
  const LoadModel& load_;
  std::map<std::tuple<PolicyName, uint32_t, uint32_t, uint32_t>, std::shared_ptr<const Plan>>
      known_;
  uint64_t slots_kept_ = 0;  // of the plans in known_
};

}  // namespace moetrain::simulate
