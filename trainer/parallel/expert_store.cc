#include "trainer/parallel/expert_store.h"

#include <algorithm>

namespace moetrain {
namespace {

class ReplicatedStore final : public ExpertStore {
 public:
  ReplicatedStore(Device& device, const ModelConfig& config, ExpertPlacement placement,
                  uint32_t rank)
      : placement_(std::move(placement)) {
    for (uint32_t layer = 0; layer < placement_.layers(); ++layer) {
      std::vector<uint32_t> held = placement_.slots[layer][rank];
      std::ranges::sort(held);
      for (const uint32_t expert : held) {
        owned_.push_back(make_expert(device, config, layer, expert));
      }
    }
    for (uint32_t layer = 0; layer < placement_.layers(); ++layer) {
      std::vector<size_t>& positions = positions_.emplace_back();
      for (const uint32_t expert : placement_.slots[layer][rank]) {
        positions.push_back(find(layer, expert));
      }
    }
  }

  const ExpertPlacement& placement() const override { return placement_; }

  Result<std::span<const ExpertTensors>> acquire(Comm&, uint32_t layer) override {
    slots_.clear();
    for (const size_t position : positions_[layer]) slots_.push_back(slot_of(owned_[position]));
    return std::span<const ExpertTensors>(slots_);
  }

  // The slot is the owner and the only copy: its gradient is where it belongs.
  Status give_gradients(Comm&, uint32_t) override { return {}; }

  std::span<Expert> owned() override { return owned_; }

 private:
  static Expert make_expert(Device& device, const ModelConfig& config, uint32_t layer,
                            uint32_t expert) {
    auto specs = expert_parameters(config, layer, expert);
    return Expert{layer, expert, Parameter(device, std::move(specs[0])),
                  Parameter(device, std::move(specs[1])), Parameter(device, std::move(specs[2]))};
  }

  static ExpertTensors slot_of(Expert& expert) {
    return {&expert.w1.weights(), &expert.w2.weights(), &expert.w3.weights(),
            &expert.w1.grad,      &expert.w2.grad,      &expert.w3.grad};
  }

  size_t find(uint32_t layer, uint32_t expert) const {
    const auto found = std::ranges::find_if(
        owned_, [&](const Expert& e) { return e.layer == layer && e.expert == expert; });
    CKPT_ASSERT(found != owned_.end());
    return static_cast<size_t>(found - owned_.begin());
  }

  ExpertPlacement placement_;
  std::vector<Expert> owned_;
  std::vector<std::vector<size_t>> positions_;  // [layer][slot]: where in owned_
  std::vector<ExpertTensors> slots_;            // what acquire() handed out last
};

}  // namespace

Result<std::unique_ptr<ExpertStore>> make_replicated_store(Device& device,
                                                           const ModelConfig& config,
                                                           const ExpertPlacement& placement,
                                                           uint32_t rank) {
  CKPT_TRY(validate(config));
  CKPT_TRY(validate(placement));
  if (placement.layers() != config.layers || placement.experts != config.experts) {
    return ckpt::make_error(ckpt::ErrorCode::kInvalidArgument,
                            "placement: {} layers of {} experts, the model has {} of {}",
                            placement.layers(), placement.experts, config.layers, config.experts);
  }
  if (rank >= placement.ranks) {
    return ckpt::make_error(ckpt::ErrorCode::kInvalidArgument,
                            "placement: rank {} of a placement for {} ranks", rank,
                            placement.ranks);
  }
  if (has_replicas(placement)) {
    return ckpt::make_error(ckpt::ErrorCode::kFailedPrecondition,
                            "placement: an expert has replicas; dispatch cannot share tokens yet");
  }
  return std::unique_ptr<ExpertStore>(
      std::make_unique<ReplicatedStore>(device, config, placement, rank));
}

}  // namespace moetrain
