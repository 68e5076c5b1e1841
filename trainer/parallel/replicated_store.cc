#include "trainer/parallel/replicated_store.h"

#include <algorithm>

#include "trainer/parallel/gradient_sums.h"
#include "trainer/parallel/replica_gradients.h"

namespace moetrain {
namespace {

class ReplicatedStore final : public ExpertStore {
 public:
  ReplicatedStore(Device& device, const ModelConfig& config, ComputePlacement placement,
                  uint32_t rank, std::vector<OwnedRange> released)
      : device_(device),
        elements_(expert_parameter_count(config)),
        placement_(std::move(placement)),
        ownership_(Ownership::replicated(placement_)) {
    std::vector<OwnedRange> kept, spares;
    for (OwnedRange& range : released) {
      const bool stays = ownership_.holds(rank, range.layer, range.expert);
      (stays ? kept : spares).push_back(std::move(range));
    }
    for (uint32_t layer = 0; layer < placement_.layers(); ++layer) {
      first_.push_back(owned_.size());
      for (const uint32_t expert : experts_of_rank(placement_, layer, rank)) {
        owned_.push_back(take(layer, expert, kept, spares));
      }
    }
    first_.push_back(owned_.size());
  }

  const ComputePlacement& placement() const override { return placement_; }
  const Ownership& ownership() const override { return ownership_; }

  Status set_placement(const ComputePlacement& next) override {
    CKPT_TRY(validate(next));
    if (Ownership::replicated(next) != ownership_) {
      return ckpt::make_error(ckpt::ErrorCode::kFailedPrecondition,
                              "replicated experts: another placement needs a new store");
    }
    placement_ = next;
    return {};
  }

  void set_schedule(const ExpertSchedule&, StepProfile&) override {}

  void begin_step() override {
    for (OwnedRange& range : owned_) range.clear_gradient();
    traffic_ = {};
  }

  Result<std::span<const ExpertTensors>> acquire(Comm&, uint32_t layer, Pass) override {
    held_.clear();
    for (size_t i = first_.at(layer); i < first_[layer + 1]; ++i) {
      held_.push_back({&owned_[i].weights(), &owned_[i].sum()});
    }
    return std::span<const ExpertTensors>(held_);
  }

  // Backward adds to the owned gradients themselves.
  Status give_gradients(Comm&, uint32_t) override { return {}; }

  Status reduce_gradients(Comm& comm) override {
    CKPT_ASSIGN(const uint64_t received,
                reduce_replica_gradients(comm, device_, placement_, owned_));
    traffic_.gradients += received;
    return {};
  }

  std::span<OwnedRange> owned() override { return owned_; }
  std::vector<OwnedRange> release() override { return std::move(owned_); }

  ExpertTraffic traffic() const override { return traffic_; }
  uint64_t memory_bytes() const override {
    uint64_t bytes = 0;
    for (const OwnedRange& range : owned_) bytes += range.memory_bytes();
    return bytes;
  }
  uint64_t memory_bound() const override { return 0; }

 private:
  OwnedRange take(uint32_t layer, uint32_t expert, std::vector<OwnedRange>& kept,
                  std::vector<OwnedRange>& spares) {
    const auto found = std::ranges::find_if(
        kept, [&](const OwnedRange& e) { return e.layer == layer && e.expert == expert; });
    if (found != kept.end()) return std::move(*found);
    if (spares.empty()) return OwnedRange(device_, layer, expert, {0, elements_});
    OwnedRange spare = std::move(spares.back());
    spares.pop_back();
    spare.clear();
    spare.layer = layer;
    spare.expert = expert;
    return spare;
  }

  Device& device_;
  const uint64_t elements_;  // of each expert
  ComputePlacement placement_;
  const Ownership ownership_;
  std::vector<OwnedRange> owned_;
  std::vector<size_t> first_;        // [layers + 1]: position of each layer's first in owned_
  std::vector<ExpertTensors> held_;  // handed out by the last acquire()
  ExpertTraffic traffic_;
};

}  // namespace

std::unique_ptr<ExpertStore> make_replicated_store(Device& device, const ModelConfig& config,
                                                   const ComputePlacement& placement, uint32_t rank,
                                                   std::vector<OwnedRange> released) {
  return std::make_unique<ReplicatedStore>(device, config, placement, rank, std::move(released));
}

}  // namespace moetrain
