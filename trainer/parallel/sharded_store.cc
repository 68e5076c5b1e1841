#include "trainer/parallel/sharded_store.h"

#include <algorithm>
#include <utility>

#include "trainer/parallel/expert_pipeline.h"
#include "trainer/parallel/gradient_sums.h"
#include "trainer/parallel/shard_exchange.h"
#include "trainer/parallel/shard_layout.h"

namespace moetrain {
namespace {

std::pair<uint32_t, uint32_t> place_of(const OwnedRange& range) {
  return {range.layer, range.expert};
}

class ShardedStore final : public ExpertStore {
 public:
  ShardedStore(Device& device, const ModelConfig& config, const ComputePlacement& placement,
               uint32_t rank, std::vector<OwnedRange> released)
      : device_(device),
        rank_(rank),
        elements_(expert_parameter_count(config)),
        ownership_(make_ownership(ExpertState::kSharded, placement)),
        own_(part_of(elements_, rank, placement.ranks)),
        exchange_(device),
        pipeline_(config.layers, exchanges()) {
    take(placement);
    // A group of another size has other ranges: frees unusable ones before allocating.
    std::erase_if(released, [&](const OwnedRange& range) { return range.elements != own_; });
    owned_.reserve(size_t{config.layers} * config.experts);
    for (uint32_t layer = 0; layer < config.layers; ++layer) {
      for (uint32_t expert = 0; expert < config.experts; ++expert) {
        const std::pair<uint32_t, uint32_t> place(layer, expert);
        const auto found = std::ranges::lower_bound(released, place, {}, place_of);
        const bool kept = found != released.end() && place_of(*found) == place;
        owned_.push_back(kept ? std::move(*found) : OwnedRange(device_, layer, expert, own_));
      }
    }
  }

  const ComputePlacement& placement() const override { return placement_; }
  const Ownership& ownership() const override { return ownership_; }
  Status set_placement(const ComputePlacement& next) override {
    CKPT_TRY(validate(next));
    if (make_ownership(ExpertState::kSharded, next) != ownership_) {
      return ckpt::make_error(ckpt::ErrorCode::kFailedPrecondition,
                              "sharded experts: cut for {} ranks, the placement has {}",
                              ownership_.ranks(), next.ranks);
    }
    take(next);
    return {};
  }

  void set_schedule(const ExpertSchedule& schedule, StepProfile& profile) override {
    pipeline_.set_schedule(schedule, profile);
  }

  void begin_step() override {
    // After a step that failed, exchanges may still run.
    pipeline_.settle();
    for (OwnedRange& range : owned_) range.clear_gradient();
    exchange_.clear_traffic();
  }

  Result<std::span<const ExpertTensors>> acquire(Comm& comm, uint32_t layer, Pass pass) override {
    CKPT_ASSERT(comm.size() == placement_.ranks && comm.rank() == rank_);
    CKPT_ASSIGN(ExpertPipeline::Tensors* const weights, pipeline_.weights(comm, layer, pass));
    ExpertPipeline::Tensors* gradients = nullptr;
    if (pass == Pass::kBackward) {
      CKPT_ASSIGN(gradients, pipeline_.gradients(comm));
    }
    held_.clear();
    for (size_t i = 0; i < layouts_.at(layer).computed_by(rank_).size(); ++i) {
      Tensor* const gradient = gradients == nullptr ? nullptr : &(*gradients)[i];
      if (gradient != nullptr) {
        resize_exact(device_, *gradient, device_.grad_sum(), elements_);
        gradient->zero();
      }
      held_.push_back({&(*weights)[i], gradient});
    }
    return std::span<const ExpertTensors>(held_);
  }

  Status give_gradients(Comm& comm, uint32_t layer) override { return pipeline_.give(comm, layer); }

  Status reduce_gradients(Comm& comm) override {
    CKPT_TRY(pipeline_.finish(comm));
    round_sums(owned_);
    CKPT_ASSERT(memory_bytes() <= memory_bound());
    return {};
  }

  std::span<OwnedRange> owned() override { return owned_; }
  std::vector<OwnedRange> release() override {
    // Frees the buffers: the caller may need their memory.
    pipeline_.set_experts(0);
    exchange_.free_buffers();
    return std::exchange(owned_, {});
  }

  ExpertTraffic traffic() const override { return exchange_.traffic(); }
  uint64_t memory_bytes() const override {
    uint64_t bytes = exchange_.memory_bytes() + pipeline_.memory_bytes();
    for (const OwnedRange& range : owned_) bytes += range.memory_bytes();
    return bytes;
  }
  // sharded_store.h explains the terms.
  uint64_t memory_bound() const override {
    const ExpertSchedule& schedule = pipeline_.schedule();
    const uint64_t ranks = ownership_.ranks();
    const uint64_t part = (elements_ + ranks - 1) / ranks;
    const uint64_t weights = elements_ * 4 * (schedule.prefetch + 1);
    const uint64_t gradients = elements_ * 8 * (schedule.delayed_reshard ? 2 : 1);
    const uint64_t others = ranks < 2 ? 0 : (ranks - 2) * part;
    const uint64_t buffers = std::max(elements_ * 16, (elements_ + others) * 8);
    return 24 * owned_.size() * part + slots_max_ * (weights + gradients + buffers);
  }

 private:
  void take(const ComputePlacement& next) {
    pipeline_.settle();
    placement_ = next;
    layouts_.clear();
    layouts_.reserve(next.layers());
    for (uint32_t layer = 0; layer < next.layers(); ++layer) {
      layouts_.emplace_back(next, layer, rank_, elements_);
      for (const std::vector<uint32_t>& slots : next.slots[layer]) {
        slots_max_ = std::max(slots_max_, slots.size());
      }
      experts_max_ = std::max(experts_max_, layouts_.back().computed_by(rank_).size());
    }
    pipeline_.set_experts(experts_max_);
  }

  ExpertPipeline::Exchanges exchanges() {
    using Tensors = ExpertPipeline::Tensors;
    return {.restore =
                [this](uint32_t layer, Tensors& weights, Mover mover) {
                  return exchange_.restore(layouts_[layer], rank_, owned_of(layer), weights, mover);
                },
            .reshard =
                [this](uint32_t layer, const Tensors& gradients, Mover mover) {
                  return exchange_.reshard(layouts_[layer], rank_, gradients, owned_of(layer),
                                           mover);
                }};
  }

  std::span<OwnedRange> owned_of(uint32_t layer) {
    return std::span(owned_).subspan(size_t{layer} * ownership_.experts(), ownership_.experts());
  }

  Device& device_;
  const uint32_t rank_;
  const uint64_t elements_;  // of each expert
  const Ownership ownership_;
  const ElementRange own_;
  ComputePlacement placement_;
  std::vector<ShardLayout> layouts_;  // [layer]
  std::vector<OwnedRange> owned_;     // [layer * experts + expert]
  size_t slots_max_ = 0;              // of any rank, in any placement so far
  size_t experts_max_ = 0;            // distinct, of this rank
  std::vector<ExpertTensors> held_;   // of the layer acquired last
  ShardExchange exchange_;
  ExpertPipeline pipeline_;  // last: its jobs use the others
};

}  // namespace

std::unique_ptr<ExpertStore> make_sharded_store(Device& device, const ModelConfig& config,
                                                const ComputePlacement& placement, uint32_t rank,
                                                std::vector<OwnedRange> released) {
  return std::make_unique<ShardedStore>(device, config, placement, rank, std::move(released));
}

}  // namespace moetrain
