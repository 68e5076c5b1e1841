// LoadModel: how many tokens the router sends to every expert, and how that changes as a run goes
// on. A recorded routing trace, or a made-up one; either way a pure function of the step, so that
// steps that are done again route as they did before.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "trainer/partial/experts.h"
#include "trainer/simulate/cost_model.h"

namespace moetrain::simulate {

// Tokens are counted in units in which every layer gives out this many per step and rank. Counts
// stay exact: 2^20 units, 10^5 ranks and 10^7 steps are below 2^63.
inline constexpr uint64_t kLoadUnits = 1 << 20;

class LoadModel {
 public:
  static constexpr uint32_t kDistinctLayersMax = 12;

  // Zipf, with an order of its own in each of up to kDistinctLayersMax layers that drifts: see
  // CostModel's [load].
  static LoadModel zipf(const CostModel& model);
  // Lines `iteration,layer,e0,...`, one for each layer of each sample, in order, under a heading
  // that begins with "iteration,layer". Layer l of the model takes layer l modulo those of the
  // trace. Each sample holds for the iterations up to the next, the last one from then on.
  // kInvalidArgument names the line: not numbers, other layers or experts than before or than
  // `model`, iterations that do not rise.
  static Result<LoadModel> from_trace(const CostModel& model, std::string_view csv,
                                      std::string_view origin);

  // The same with [load] of `model`; a trace stays what it is.
  LoadModel varied(const CostModel& model) const { return starts_.empty() ? zipf(model) : *this; }

  // Layers from this one on repeat those before: layer l is layer l modulo this. Planning all 64
  // layers of a large model after each loss of a long trace would take longer than anybody waits.
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
  std::vector<uint64_t> starts_;    // first step of each sample of a trace; empty: made up
  std::vector<uint64_t> by_place_;  // units of the k-th most popular expert
  uint64_t seed_ = 0;
  uint32_t exchanges_ = 0;
  // Of the epochs up to now. Made when asked for: nobody knows how long a run will be.
  mutable std::vector<std::vector<std::vector<uint64_t>>> epochs_;
  mutable std::vector<std::vector<uint32_t>> order_;  // [layer][place]: expert, in the last epoch
};

// Shares of the weights that sum to kLoadUnits: rounded down, what is left goes to the first ones.
std::vector<uint64_t> to_units(const std::vector<double>& weights);

}  // namespace moetrain::simulate
