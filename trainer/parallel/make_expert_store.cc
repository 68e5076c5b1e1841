#include "trainer/parallel/make_expert_store.h"

#include "trainer/parallel/replicated_store.h"
#include "trainer/parallel/sharded_store.h"

namespace moetrain {

using ckpt::ErrorCode;
using ckpt::make_error;

namespace {

Status check(const ModelConfig& config, const ComputePlacement& placement,
             const Ownership& ownership, uint32_t rank) {
  CKPT_TRY(validate(config));
  CKPT_TRY(validate(placement));
  if (placement.layers() != config.layers || placement.experts != config.experts) {
    return make_error(ErrorCode::kInvalidArgument,
                      "placement: {} layers of {} experts, the model has {} of {}",
                      placement.layers(), placement.experts, config.layers, config.experts);
  }
  if (rank >= placement.ranks) {
    return make_error(ErrorCode::kInvalidArgument, "placement: rank {} of a placement for {} ranks",
                      rank, placement.ranks);
  }
  if (ownership != make_ownership(ownership.state(), placement)) {
    return make_error(ErrorCode::kInvalidArgument,
                      "placement: the ownership of {} ranks is not that of the placement for {}",
                      ownership.ranks(), placement.ranks);
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<ExpertStore>> make_expert_store(Device& device, const ModelConfig& config,
                                                       const ComputePlacement& placement,
                                                       const Ownership& ownership, uint32_t rank,
                                                       std::vector<OwnedRange> released) {
  CKPT_TRY(check(config, placement, ownership, rank));
  if (ownership.state() == ExpertState::kReplicated) {
    return make_replicated_store(device, config, placement, rank, std::move(released));
  }
  if (expert_parameter_count(config) < placement.ranks) {
    return make_error(ErrorCode::kInvalidArgument,
                      "sharded experts: {} ranks for experts of {} parameters; each rank needs one",
                      placement.ranks, expert_parameter_count(config));
  }
  return make_sharded_store(device, config, placement, rank, std::move(released));
}

}  // namespace moetrain
