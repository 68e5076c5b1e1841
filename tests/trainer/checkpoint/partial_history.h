// A run of a small model with all of its commits, without a daemon.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <vector>

#include "formats/base/assert.h"
#include "trainer/checkpoint/partial_checkpoint.h"

namespace moetrain {

constexpr uint32_t kLayers = 2;
constexpr uint32_t kExperts = 6;
inline const ExpertGrid kGrid{kLayers, kExperts};

inline std::vector<StateUnit> small_units() {
  ModelConfig config;
  config.layers = kLayers;
  config.experts = kExperts;
  return state_units(config);
}

// A run and its commits, as ckptd would store them.
class History {
 public:
  History(const PartialOptions& options, uint32_t seed)
      : random_(seed), partial_(units_, placement_, options) {
    routed_.resize(kGrid.size());
    held_ = updates_ = routed_;
  }

  void step() {
    ++step_;
    for (size_t i = 0; i < kGrid.size(); ++i) {
      const auto tokens = static_cast<int64_t>(random_() % 40);
      routed_[i] += tokens;
      held_[i] += tokens;
      ++updates_[i];
    }
  }

  // Takes a snapshot; commits it unless `fails`.
  PartialCheckpoint::Plan snapshot(bool full, bool fails) {
    auto plan = partial_.next(step_, {routed_, updates_}, full, stamps_);
    if (fails) return plan;
    Commit& commit = commits_[step_];
    commit = {
        .state = partial_.state(), .routed = routed_, .table = stamps_.list(), .versions = {}};
    for (const uint32_t id : plan.units) {
      if (!units_[id].expert) continue;
      const size_t at = kGrid.at(*units_[id].layer, *units_[id].expert);
      commit.versions[id] = {stamps_.at(part(id), at), held_[at], updates_[at]};
    }
    return plan;
  }
  void mark_failed(uint64_t step) { partial_.failed(step); }

  // All ranks restart from the commit of a step; newer ones belong to another lineage.
  Result<RecoveryLoss> resume(uint64_t step) {
    commits_.erase(commits_.upper_bound(step), commits_.end());
    const Commit view = commits_.at(step);
    ExpertStamps restored(kGrid);
    ExpertStamps stamps_of_versions(kGrid);
    std::vector<ExpertVersion> versions;
    std::vector<int64_t> held(kGrid.size(), INT64_MAX);
    for (uint32_t id = 0; id < units_.size(); ++id) {
      if (!units_[id].expert) continue;
      const size_t at = kGrid.at(*units_[id].layer, *units_[id].expert);
      const Version& version = newest(id);
      EXPECT_EQ(version.stamp.step, static_cast<int64_t>(step_of_newest(id)));
      versions.push_back({id, 1, step_of_newest(id)});
      stamps_of_versions.at(part(id), at) = version.stamp;
      held[at] = std::min(held[at], version.held);
      if (part(id) == ExpertPart::kOptimizer) {
        updates_[at] = version.updates;
        EXPECT_EQ(version.stamp.updates, version.updates);
      }
    }
    // Takes stamps in the order of a restore: from the view's table, then from older commits.
    versions = take_stamps(view.table, units_, versions, restored);
    while (!versions.empty()) {
      older_tables_ += 1;
      const auto others =
          take_stamps(commits_.at(versions.front().step).table, units_, versions, restored);
      EXPECT_LT(others.size(), versions.size());
      versions = others;
    }
    EXPECT_EQ(restored.list(), stamps_of_versions.list());
    step_ = step;
    routed_ = view.routed;
    held_ = held;
    stamps_ = restored;
    return partial_.resume(view.state, routed_, restored);
  }

  // Rolls one expert back to its newest versions; the others keep their state.
  Result<RecoveryLoss> roll_back(uint32_t expert) { return roll_back(std::vector{expert}); }
  Result<RecoveryLoss> roll_back(const std::vector<uint32_t>& experts) {
    ExpertStamps restored(kGrid);
    for (const uint32_t expert : experts) held_[expert] = INT64_MAX;
    for (uint32_t id = 0; id < units_.size(); ++id) {
      if (!units_[id].expert) continue;
      const auto expert = static_cast<uint32_t>(kGrid.at(*units_[id].layer, *units_[id].expert));
      if (std::ranges::find(experts, expert) == experts.end()) continue;
      restored.at(part(id), expert) = newest(id).stamp;
      held_[expert] = std::min(held_[expert], newest(id).held);
    }
    auto loss = partial_.roll_back(experts, restored, routed_, updates_);
    for (const uint32_t expert : experts) {
      EXPECT_EQ(updates_[expert], restored.at(ExpertPart::kOptimizer, expert).updates);
    }
    return loss;
  }

  // Checks the losses of restarts and rollbacks together against the experts' states.
  void expect_true_totals() const {
    const PltMeter::Lost lost = partial_.state().lost;
    for (size_t i = 0; i < kGrid.size(); ++i) {
      EXPECT_EQ(lost.restart[i] + lost.rollback[i], routed_[i] - held_[i]) << "expert " << i;
    }
  }

  // Checks the meter against the experts' states; all losses must be those of restarts.
  void expect_true_losses() const {
    PltMeter::Lost lost = partial_.state().lost;
    for (size_t i = 0; i < kGrid.size(); ++i) {
      EXPECT_EQ(lost.restart[i], routed_[i] - held_[i]) << "expert " << i;
      EXPECT_EQ(lost.rollback[i], 0);
    }
  }

  PartialCheckpoint& partial() { return partial_; }
  ExpertStamps& stamps() { return stamps_; }
  const std::vector<int64_t>& routed() const { return routed_; }
  uint64_t now() const { return step_; }
  int older_tables() const { return older_tables_; }
  std::vector<uint64_t> committed() const {
    std::vector<uint64_t> steps;
    for (const auto& [step, commit] : commits_) steps.push_back(step);
    return steps;
  }
  const std::vector<StateUnit>& units() const { return units_; }
  const ComputePlacement& placement() const { return placement_; }
  std::mt19937& random() { return random_; }

 private:
  struct Version {
    ExpertStamp stamp;
    int64_t held = 0;
    int64_t updates = 0;
  };
  struct Commit {
    PartialState state;
    std::vector<int64_t> routed;
    std::vector<ExpertStamp> table;  // in the commit's trainer unit
    std::map<uint32_t, Version> versions;
  };
  ExpertPart part(uint32_t id) const {
    return units_[id].part == "weights" ? ExpertPart::kWeights : ExpertPart::kOptimizer;
  }
  uint64_t step_of_newest(uint32_t id) const {
    for (auto at = commits_.rbegin();; ++at) {
      CKPT_ASSERT(at != commits_.rend());
      if (at->second.versions.contains(id)) return at->first;
    }
  }
  const Version& newest(uint32_t id) const {
    return commits_.at(step_of_newest(id)).versions.at(id);
  }

  const std::vector<StateUnit> units_ = small_units();
  const ComputePlacement placement_ = *static_placement(kLayers, kExperts, 3);
  std::mt19937 random_;
  PartialCheckpoint partial_;
  ExpertStamps stamps_{kGrid};
  std::map<uint64_t, Commit> commits_;
  uint64_t step_ = 0;
  int older_tables_ = 0;
  std::vector<int64_t> routed_, held_, updates_;
};

}  // namespace moetrain
