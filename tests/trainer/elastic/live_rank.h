// A rank without a daemon and without a process: it trains, changes its group and moves experts, on
// any device. Needs no test framework: tests and a check on a GPU run it.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "tests/trainer/training/training.h"
#include "trainer/checkpoint/units.h"
#include "trainer/elastic/live_state.h"
#include "trainer/elastic/next_placement.h"
#include "trainer/parallel/make_expert_store.h"

namespace moetrain {

inline std::unique_ptr<Model> make_model(Device& device, const TrainConfig& config,
                                         const ComputePlacement& placement, uint32_t rank,
                                         ExpertState state = ExpertState::kReplicated) {
  auto store =
      make_expert_store(device, config.model, placement, make_ownership(state, placement), rank);
  return std::move(Model::create(device, config.model, std::move(store).value())).value();
}

// One rank without a daemon.
struct Rank {
  Rank(std::unique_ptr<Device> with_device, const TrainConfig& with_config,
       std::span<const uint8_t> text, uint32_t ranks, uint32_t rank,
       const PlacementOptions& with_choice, ExpertState state = ExpertState::kReplicated)
      : config(with_config),
        choice(with_choice),
        units(state_units(config.model)),
        placement(*place_experts(choice, config.model, ranks, {})),
        device(std::move(with_device)),
        model(make_model(*device, config, placement, rank, state)),
        trainer(config, text),
        stamps({config.model.layers, config.model.experts}),
        partial(units, placement, {}),
        pacer({.auto_every = true,
               .experts = config.model.experts,
               .dense_bytes = 1,
               .expert_bytes = 1}),
        live(LiveState::Parts{*model, trainer, progress, partial, pacer, stamps, placement,
                              saved_step, last_loss, [this] { before_change(); }}) {}

  Status step(Comm& comm) {
    CKPT_ASSIGN(PendingStep pending, trainer.compute(comm, *model, progress));
    live.set_pending(std::move(pending));
    CKPT_TRY(comm.barrier());
    losses.push_back(trainer.apply(*model, progress, live.take_pending()).loss);
    return {};
  }
  static Status fail_in_phase(int phase, Comm& comm, int dies_in) {
    if (phase != dies_in) return {};
    comm.abort("it is gone");
    return ckpt::make_error(ckpt::ErrorCode::kAborted, "gone");
  }
  // The phases of a membership change; the rank dies before phase `dies_in`.
  Status change(Comm& comm, int dies_in = -1) {
    CKPT_TRY(fail_in_phase(0, comm, dies_in));
    CKPT_TRY(live.agree(comm));
    const PlanPlacement planner = [this](uint32_t ranks, const auto& routed, const auto& held) {
      auto placed = place_experts(choice, config.model, ranks, routed);
      return placed.ok() ? Result<ComputePlacement>(keep_in_place(*placed, held, placed->ranks))
                         : placed;
    };
    return change_places(comm, planner, dies_in);
  }
  // Keeps the members; every rank gets the experts of the next rank.
  Status rotate(Comm& comm, int dies_in = -1) {
    live.agree_unchanged(comm.size());
    ComputePlacement next = placement;
    for (LayerSlots& layer : next.slots) std::rotate(layer.begin(), layer.begin() + 1, layer.end());
    const PlanPlacement planner = [next](uint32_t, const auto&, const auto&) {
      return Result<ComputePlacement>(next);
    };
    return change_places(comm, planner, dies_in);
  }
  Status change_places(Comm& comm, const PlanPlacement& planner, int dies_in) {
    CKPT_TRY(fail_in_phase(1, comm, dies_in));
    CKPT_TRY(live.plan(comm, planner));
    CKPT_TRY(fail_in_phase(2, comm, dies_in));
    CKPT_TRY(live.move(comm));
    CKPT_TRY(fail_in_phase(3, comm, dies_in));
    CKPT_TRY(live.commit(comm));
    CKPT_TRY(fail_in_phase(4, comm, dies_in));
    for (OwnedRange& range : model->experts().owned()) {
      const uint32_t item = range.layer * config.model.experts + range.expert;
      if (!live.lost_here().contains(item)) continue;
      initialise(range, config.model, config.seed);
      stamps.at(ExpertPart::kWeights, item) = {};
      stamps.at(ExpertPart::kOptimizer, item) = {};
    }
    CKPT_ASSIGN(const auto settled, live.settle(comm, in_memory));
    lost_tokens += settled.lost_tokens;
    bytes_moved = settled.bytes_moved;
    versions = settled.versions;
    return {};
  }

  const TrainConfig& config;
  const PlacementOptions choice;
  const std::vector<StateUnit> units;
  ComputePlacement placement;
  const std::unique_ptr<Device> device;  // its own: it has scratch memory
  std::unique_ptr<Model> model;
  Trainer trainer;
  Progress progress;
  ExpertStamps stamps;
  PartialCheckpoint partial;
  Pacer pacer;
  uint64_t saved_step = 0;
  std::function<void()> before_change = [] {};
  float last_loss = 0;
  LiveState live;
  std::vector<float> losses;
  int64_t lost_tokens = 0;
  uint64_t bytes_moved = 0;       // by the last change
  std::vector<int64_t> versions;  // of the last change
  std::set<uint32_t> in_memory;   // restored experts whose version is on no disk
};

}  // namespace moetrain
