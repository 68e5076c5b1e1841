#include "trainer/parallel/planned_placement.h"

#include <algorithm>
#include <utility>

#include "formats/base/assert.h"

namespace moetrain {
namespace {

bool promises_replicas(PolicyName policy) {
  return policy == PolicyName::kLazarus || policy == PolicyName::kFrontier;
}

std::vector<std::vector<uint64_t>> loads_of(const ModelConfig& shape,
                                            std::span<const int64_t> routed) {
  std::vector<std::vector<uint64_t>> loads(shape.layers, std::vector<uint64_t>(shape.experts, 0));
  for (size_t i = 0; i < routed.size(); ++i) {
    loads[i / shape.experts][i % shape.experts] = static_cast<uint64_t>(routed[i]);
  }
  return loads;
}

PlacementRequest request_for(const PlacementOptions& options, const ModelConfig& shape,
                             const RankGroup& group, std::span<const int64_t> routed) {
  return {.loads = loads_of(shape, routed),
          .ranks = group.ranks,
          .slots_per_rank = slots_per_rank(options, shape, group.ranks),
          .domain_of_rank = group.domain_of_rank};
}

// Slots of each rank, so that every expert has one.
uint32_t fewest_slots(const ModelConfig& shape, uint32_t ranks) {
  return (shape.experts + ranks - 1) / ranks;
}

}  // namespace

std::optional<std::string> lacks_slots(const PlacementOptions& options, const ModelConfig& shape,
                                       uint32_t ranks) {
  const uint32_t most = options.slots_max;
  if (most == 0 || ranks == 0 || uint64_t{ranks} * most >= shape.experts) return std::nullopt;
  return fmt::format(
      "{} rank{} with --slots-max {} can hold {} of the {} experts of a layer: at least {} ranks"
      " are needed, or {} slots",
      ranks, ranks == 1 ? "" : "s", most, ranks * most, shape.experts,
      (shape.experts + most - 1) / most, fewest_slots(shape, ranks));
}

uint32_t slots_per_rank(const PlacementOptions& options, const ModelConfig& shape, uint32_t ranks) {
  if (options.slots != 0) return options.slots;
  const uint32_t twice = std::min(2 * fewest_slots(shape, ranks), shape.experts);
  return options.slots_max != 0 ? std::min(twice, options.slots_max) : twice;
}

uint32_t most_replicas(const PlacementOptions& options, const ModelConfig& shape,
                       const RankGroup& group) {
  PlacementRequest request = request_for(options, shape, group, {});
  request.replicas_min = group.domains();
  return replicas_possible(request);
}

Result<ComputePlacement> plan_experts(const PlacementOptions& options, const ModelConfig& shape,
                                      const RankGroup& group, std::span<const int64_t> routed,
                                      std::vector<LayerSlots> current) {
  const uint32_t ranks = group.ranks;
  CKPT_ASSERT(routed.empty() || routed.size() == size_t{shape.layers} * shape.experts);
  if (const auto lacking = lacks_slots(options, shape, ranks)) {
    return ckpt::make_error(ckpt::ErrorCode::kInvalidArgument, "{}", *lacking);
  }
  if (options.policy == PolicyName::kStatic && options.slots == 0) {
    return static_placement(shape.layers, shape.experts, ranks);
  }
  if (ranks == 0) {
    return ckpt::make_error(ckpt::ErrorCode::kInvalidArgument, "placement: no ranks");
  }
  PlacementRequest request = request_for(options, shape, group, routed);
  request.replicas_min = options.replicas_min != 0 ? options.replicas_min : 1;
  if (options.replicas_min == 0 && promises_replicas(options.policy)) {
    request.replicas_min = std::clamp(most_replicas(options, shape, group), 1u, 2u);
  }
  request.current = std::move(current);
  CKPT_ASSIGN(std::vector<LayerSlots> slots, plan_placement(options.policy, request));
  return make_placement(std::move(slots), shape.experts, ranks);
}

StepPlanOptions step_plan_options(const PlacementOptions& options, const ModelConfig& shape,
                                  uint32_t ranks, std::vector<uint32_t> node_of_rank) {
  const bool fewest = options.policy == PolicyName::kStatic && options.slots == 0;
  return {
      .policy = options.policy,
      .layers = shape.layers,
      .experts = shape.experts,
      .ranks = ranks,
      .slots_per_rank = fewest ? fewest_slots(shape, ranks) : slots_per_rank(options, shape, ranks),
      .node_of_rank = std::move(node_of_rank)};
}

Result<ComputePlacement> plan_first_step(const PlacementOptions& options, const ModelConfig& shape,
                                         uint32_t ranks,
                                         const std::vector<uint32_t>& node_of_rank) {
  CKPT_ASSIGN(std::vector<LayerSlots> slots,
              plan_step(step_plan_options(options, shape, ranks, node_of_rank), {}));
  return make_placement(std::move(slots), shape.experts, ranks, node_of_rank);
}

}  // namespace moetrain
