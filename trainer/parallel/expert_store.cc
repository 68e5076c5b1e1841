#include "trainer/parallel/expert_store.h"

#include <algorithm>

namespace moetrain {
namespace {

Expert make_expert(Device& device, const ModelConfig& config, uint32_t layer, uint32_t expert) {
  auto specs = expert_parameters(config, layer, expert);
  return Expert{layer, expert, Parameter(device, std::move(specs[0])),
                Parameter(device, std::move(specs[1])), Parameter(device, std::move(specs[2]))};
}

// Another expert in the same memory.
void rename(Expert& as, const ModelConfig& config, uint32_t layer, uint32_t expert) {
  auto specs = expert_parameters(config, layer, expert);
  as.layer = layer;
  as.expert = expert;
  size_t next = 0;
  for (Parameter* parameter : {&as.w1, &as.w2, &as.w3}) {
    parameter->spec = std::move(specs[next++]);
    for (Tensor* tensor : {&parameter->value, &parameter->grad, &parameter->grad_sum, &parameter->m,
                           &parameter->v, &parameter->rounded}) {
      tensor->zero();
    }
  }
}

ExpertTensors tensors_of(Expert& expert) {
  return {&expert.w1.weights(), &expert.w2.weights(), &expert.w3.weights(),
          &expert.w1.sum(),     &expert.w2.sum(),     &expert.w3.sum()};
}

class ReplicatedStore final : public ExpertStore {
 public:
  ReplicatedStore(Device& device, const ModelConfig& config, ExpertPlacement placement,
                  uint32_t rank, std::vector<Expert> released)
      : placement_(std::move(placement)) {
    std::vector<std::vector<uint32_t>> wanted;
    wanted.reserve(placement_.layers());
    for (uint32_t layer = 0; layer < placement_.layers(); ++layer) {
      wanted.push_back(experts_of_rank(placement_, layer, rank));
    }
    std::vector<Expert> kept, spares;
    for (Expert& has : released) {
      const bool stays = std::ranges::binary_search(wanted.at(has.layer), has.expert);
      (stays ? kept : spares).push_back(std::move(has));
    }
    for (uint32_t layer = 0; layer < placement_.layers(); ++layer) {
      first_.push_back(owned_.size());
      for (const uint32_t expert : wanted[layer]) {
        owned_.push_back(take(device, config, layer, expert, kept, spares));
      }
    }
    first_.push_back(owned_.size());
  }

  const ExpertPlacement& placement() const override { return placement_; }

  Result<std::span<const ExpertTensors>> acquire(Comm&, uint32_t layer) override {
    held_.clear();
    for (size_t i = first_.at(layer); i < first_[layer + 1]; ++i) {
      held_.push_back(tensors_of(owned_[i]));
    }
    return std::span<const ExpertTensors>(held_);
  }

  // A holder owns: what came to it is where it belongs. Replicas meet once a step.
  Status give_gradients(Comm&, uint32_t) override { return {}; }

  std::span<Expert> owned() override { return owned_; }
  std::vector<Expert> release() override { return std::move(owned_); }

 private:
  static Expert take(Device& device, const ModelConfig& config, uint32_t layer, uint32_t expert,
                     std::vector<Expert>& kept, std::vector<Expert>& spares) {
    const auto found = std::ranges::find_if(
        kept, [&](const Expert& e) { return e.layer == layer && e.expert == expert; });
    if (found != kept.end()) return std::move(*found);
    if (spares.empty()) return make_expert(device, config, layer, expert);
    Expert spare = std::move(spares.back());
    spares.pop_back();
    rename(spare, config, layer, expert);
    return spare;
  }

  ExpertPlacement placement_;
  std::vector<Expert> owned_;
  std::vector<size_t> first_;        // [layers + 1]: where a layer's begin
  std::vector<ExpertTensors> held_;  // what acquire() handed out last
};

}  // namespace

Result<std::unique_ptr<ExpertStore>> make_replicated_store(Device& device,
                                                           const ModelConfig& config,
                                                           const ExpertPlacement& placement,
                                                           uint32_t rank) {
  return make_replicated_store(device, config, placement, rank, {});
}

Result<std::unique_ptr<ExpertStore>> make_replicated_store(Device& device,
                                                           const ModelConfig& config,
                                                           const ExpertPlacement& placement,
                                                           uint32_t rank,
                                                           std::vector<Expert> released) {
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
  return std::unique_ptr<ExpertStore>(
      std::make_unique<ReplicatedStore>(device, config, placement, rank, std::move(released)));
}

}  // namespace moetrain
