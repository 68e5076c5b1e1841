// LoadModel: tokens that the router sends to every expert, and their change during a run.
// From a recorded routing trace, or synthetic; either way a pure function of the step, so that
// redone steps route as before.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "trainer/partial/experts.h"
#include "trainer/simulate/cost_model.h"

namespace moetrain::simulate {

// Tokens are counted in units of which every layer routes this many per step and rank. Counts
// stay exact: 2^20 units, 10^5 ranks and 10^7 steps are below 2^63.
inline constexpr uint64_t kLoadUnits = 1 << 20;

class LoadModel {
 public:
  static constexpr uint32_t kDistinctLayersMax = 12;

  // Zipf, with its own drifting order in each of up to kDistinctLayersMax layers: see
  // CostModel's [load].
  static LoadModel zipf(const CostModel& model);
  // Lines `iteration,layer,e0,...`, one for each layer of each sample, in order, under a heading
  // that begins with "iteration,layer". Layer l of the model takes layer l modulo those of the
  // trace. Each sample holds for the iterations up to the next, the last one from then on.
  // kInvalidArgument names the line: not numbers, other layers or experts than before or than
  // `model`, iterations that do not rise.
  static Result<LoadModel> from_trace(const CostModel& model, std::string_view csv,
                                      std::string_view origin);

  // Same with [load] of `model`; a recorded trace is unchanged.
  LoadModel varied(const CostModel& model) const { return starts_.empty() ? zipf(model) : *this; }

  // Layers from this one on repeat earlier ones: layer l is layer l modulo this. Planning all 64
  // layers of a large model after each loss of a long trace would take too long.
  uint32_t distinct_layers() const { return distinct_; }

  const ExpertGrid& grid() const { return grid_; }

  // Loads are the same throughout an epoch; epochs are numbered from 0.
  uint32_t epoch_of(uint64_t step) const;
  // The first step that is in a later epoch than `step`; 2^64 - 1: none.
  uint64_t epoch_end(uint64_t step) const;
  // [layer][expert], units; every layer sums to kLoadUnits. Valid until the next call.
  const std::vector<std::vector<uint64_t>>& loads(uint32_t epoch) const;

 private:
  LoadModel(const CostModel& model, std::vector<uint64_t> starts);
  void extend() const;

  ExpertGrid grid_;
  uint32_t distinct_ = 1;
  uint64_t epoch_steps_ = 1;
  std::vector<uint64_t> starts_;    // first step of each sample of a trace; empty: synthetic
  std::vector<uint64_t> by_place_;  // units of the k-th most popular expert
  uint64_t seed_ = 0;
  uint32_t exchanges_ = 0;
  // Epochs computed so far. Filled on demand, since the length of a run is unknown.
  mutable std::vector<std::vector<std::vector<uint64_t>>> epochs_;
  mutable std::vector<std::vector<uint32_t>> order_;  // [layer][place]: expert, in the last epoch
};

// Shares of the weights that sum to kLoadUnits: rounded down, the rest goes to the first ones.
std::vector<uint64_t> to_units(const std::vector<double>& weights);

}  // namespace moetrain::simulate
