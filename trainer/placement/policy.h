// Placement policies behind one interface: loads and ranks in, the slots of every layer out. The
// trainer, the simulator, `moetrain plan` and the benches call plan_placement; judge.h rates
// the result. Pure and deterministic: the same request, the same placement, on any rank.
//
//   static    classic expert parallelism: blocks of experts, repeated by data parallel groups
//   eplb      DeepSeek's balancer: extra slots for the most loaded experts, packed by load
//   flexmoe   expands, shrinks and migrates one replica at a time while a cost model says it pays
//   lazarus   Eq. 1 and Maximum Rank Overlap (arXiv 2407.04656), repaired; layers aligned
//   laer      LAER-MoE's planner: several replica counts, greedy placement, the cheapest one
//   frontier  the best balance found among placements with a wanted joint recovery (ours)
//
// Only `lazarus` and `frontier` promise replicas_min distinct failure domains to every expert; the
// others follow their papers, and are judged as published.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "formats/base/result.h"
#include "trainer/placement/layer_slots.h"

namespace moetrain {

enum class PolicyName { kStatic, kEplb, kFlexmoe, kLazarus, kLaer, kFrontier };

inline constexpr PolicyName kPolicies[] = {PolicyName::kStatic,  PolicyName::kEplb,
                                           PolicyName::kFlexmoe, PolicyName::kLazarus,
                                           PolicyName::kLaer,    PolicyName::kFrontier};

std::string_view policy_name(PolicyName policy);
// kInvalidArgument, naming all policies, for anything else.
Result<PolicyName> parse_policy(std::string_view name);

// "When `failures` domains are lost at once, the whole model shall survive with at least this
// probability", each set of that many domains being equally likely.
struct RecoveryWanted {
  uint32_t failures = 0;
  double probability = 0;  // 0 .. 1, of all layers together
};

struct PlacementRequest {
  // [layer][expert]: tokens, from the routing history. The same number of experts in every layer.
  // A layer without any token is planned, and judged, as if its experts had equal loads.
  std::vector<std::vector<uint64_t>> loads;
  uint32_t ranks = 0;           // N
  uint32_t slots_per_rank = 0;  // c
  uint32_t replicas_min = 1;    // f: replicas in distinct domains for every expert

  // [rank]: its failure domain, 0 .. D - 1, all of them used. Empty: every rank is a domain.
  std::vector<uint32_t> domain_of_rank;

  // Ranks r * nodes / ranks share a node; `nodes` divides `ranks`. With more than one, `eplb` is
  // hierarchical if nodes divide expert_groups (else global, as published), and `laer` counts
  // what crosses nodes. Experts e * expert_groups / E are a group; groups divide the experts.
  uint32_t nodes = 1;
  uint32_t expert_groups = 1;

  // [layer][rank]: the current placement; new ranks hold nothing. Empty: no rank holds
  // anything. `flexmoe` starts from it, judge() counts moves from it.
  std::vector<LayerSlots> current;

  // The number of lost domains for which recovery is to be best; 0: for 1, then 2, and so on.
  // `lazarus` rates by it; `frontier` compares itself with `lazarus` at it.
  uint32_t failures = 0;

  // `frontier` only: recovery that its placement must reach. Empty: at the number of failures asked
  // (or 1, 2 and 4) at least that of Maximum Rank Overlap, repaired, layers aligned. An entry with
  // probability 0 asks for nothing but balance (and replicas_min).
  std::vector<RecoveryWanted> recovery_wanted;

  uint32_t layers() const { return static_cast<uint32_t>(loads.size()); }
  uint32_t experts() const {
    return loads.empty() ? 0 : static_cast<uint32_t>(loads.front().size());
  }
  uint32_t slots() const { return ranks * slots_per_rank; }
  uint32_t domains() const;
  uint32_t domain(uint32_t rank) const {
    return domain_of_rank.empty() ? rank : domain_of_rank[rank];
  }
};

// Sanity limits: they keep every product within 32 bits and plans in memory.
inline constexpr uint32_t kPlacementRanksMax = 1u << 16;
inline constexpr uint32_t kPlacementSlotsMax = 1u << 22;    // ranks * slots_per_rank
inline constexpr uint32_t kPlacementExpertsMax = 1u << 16;  // of a layer
// Limit of the matrix of ranks and experts that stores the holders.
inline constexpr uint64_t kPlacementHoldersMax = uint64_t{1} << 26;
inline constexpr uint64_t kPlacementTokensMax = uint64_t{1} << 48;  // of a layer

// kInvalidArgument, in a sentence that names the wrong number, unless the request is consistent
// and replicas_min is possible.
Status validate(const PlacementRequest& request);

// The largest f <= replicas_min that these ranks can give to every expert: min(f, domains,
// floor(N c / E)), less if domains differ so much in size that the small ones run out of
// slots. 0: not even one replica of each fits. After a loss of ranks a caller plans with this
// instead, and says so.
uint32_t replicas_possible(const PlacementRequest& request);

// True for a layer without tokens: then its experts count alike.
bool has_no_load(const std::vector<uint64_t>& loads);

// [layer]: its slots, [rank][slot], at most slots_per_rank of them on each rank (`static` alone may
// leave some empty). Every expert of every layer has one. kInvalidArgument as validate();
// kFailedPrecondition if `frontier` cannot reach recovery_wanted: the message says what it can.
Result<std::vector<LayerSlots>> plan_placement(PolicyName policy, const PlacementRequest& request);

}  // namespace moetrain
