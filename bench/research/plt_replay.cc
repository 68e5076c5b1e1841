#include "bench/research/plt_replay.h"

#include <algorithm>
#include <numeric>

#include "trainer/partial/save_ledger.h"
#include "trainer/placement/recovery.h"

namespace bench {

using ckpt::Result;
using moetrain::ExpertCandidate;
using moetrain::ExpertGrid;
using moetrain::LayerSlots;
using moetrain::SaveLedger;

namespace {

class Replayer {
 public:
  Replayer(const RoutingTrace& trace, const TracePlacements& placements,
           const ReplayOptions& options)
      : trace_(trace),
        placements_(placements),
        options_(options),
        grid_(trace.grid),
        ledger_(std::vector<SaveLedger::Saved>(grid_.size(), {.snapshot = kStart, .tokens = 0})),
        routed_(grid_.size()),
        number_(kStart) {
    result_.failures.reserve(options.dead_max);
    for (uint32_t dead = 1; dead <= options.dead_max; ++dead) {
      result_.failures.push_back({.dead = dead});
    }
    risk_.reserve(placements.ranks + 1);
    for (uint32_t held = 0; held <= placements.ranks; ++held) {
      risk_.push_back(moetrain::failure_takes_all(placements.ranks, held));
    }
  }

  Replay run() {
    for (size_t sample = 0; sample < trace_.samples.size(); ++sample) {
      for (size_t i = 0; i < grid_.size(); ++i) routed_[i] += trace_.samples[sample][i];
      add(1, lost_in_restart_, result_.restart_lost_tokens);
      if (sample % placements_.replan == 0) load_placement(placements_.at(sample));
      fail_here();
      if ((sample + 1) % options_.interval == 0) snapshot();
    }
    // Every layer has the same assignments, so the mean over layers is one quotient. Without any
    // nothing can be lost.
    const double tokens =
        std::max(1.0, static_cast<double>(trace_.assignments) * static_cast<double>(grid_.layers));
    const auto samples = static_cast<double>(trace_.samples.size());
    for (FailureCases& failure : result_.failures) {
      failure.expected_plt =
          static_cast<double>(failure.lost_tokens) / static_cast<double>(failure.cases) / tokens;
    }
    result_.restart_plt = static_cast<double>(result_.restart_lost_tokens) / samples / tokens;
    return std::move(result_);
  }

 private:
  static constexpr uint64_t kStart = 1;  // the snapshot before the first sample, of everything

  int64_t unsaved(size_t expert) const { return routed_[expert] - ledger_[expert].tokens; }

  void load_placement(const std::vector<LayerSlots>& layers) {
    masks_.clear();
    turns_.clear();
    for (uint32_t layer = 0; layer < grid_.layers; ++layer) {
      const auto masks = moetrain::holder_masks(layers[layer], grid_.experts);
      masks_.insert(masks_.end(), masks.begin(), masks.end());
      const auto turns = moetrain::turns(layers[layer], grid_.experts, layer, options_.selection.k);
      turns_.insert(turns_.end(), turns.begin(), turns.end());
    }
  }

  // sum += count * each. Records an overflow, because a trace may contain any numbers.
  void add(uint64_t count, uint64_t each, uint64_t& sum) {
    uint64_t product = 0;
    result_.overflowed |=
        __builtin_mul_overflow(count, each, &product) || __builtin_add_overflow(sum, product, &sum);
  }

  // All sets of ranks that may fail at this time.
  void fail_here() {
    std::vector<moetrain::RankMask> unsaved_masks;
    std::vector<uint64_t> tokens_by_holders(placements_.ranks + 1);
    for (size_t i = 0; i < grid_.size(); ++i) {
      if (unsaved(i) == 0) continue;
      unsaved_masks.push_back(masks_[i]);
      tokens_by_holders[static_cast<size_t>(std::popcount(masks_[i]))] +=
          static_cast<uint64_t>(unsaved(i));
    }
    const auto lossless = moetrain::surviving_sets(unsaved_masks, placements_.ranks);
    for (FailureCases& failure : result_.failures) {
      add(1, moetrain::binomial(placements_.ranks, failure.dead), failure.cases);
      add(1, lossless[failure.dead], failure.zero_loss_cases);
      for (uint32_t held = 0; held <= failure.dead; ++held) {
        add(tokens_by_holders[held],
            moetrain::binomial(placements_.ranks - held, failure.dead - held), failure.lost_tokens);
      }
    }
  }

  ExpertCandidate candidate(size_t expert) const {
    return {.unsaved_tokens = unsaved(expert),
            .age = number_ - ledger_[expert].snapshot,
            .loss_probability = risk_[static_cast<size_t>(std::popcount(masks_[expert]))],
            .turn = turns_[expert]};
  }

  void snapshot() {
    ++number_;
    const auto chosen = moetrain::choose_experts(
        grid_, options_.selection, [this](size_t expert) { return candidate(expert); });
    for (const uint32_t expert : chosen) {
      result_.gap_max = std::max(result_.gap_max, number_ - ledger_[expert].snapshot);
    }
    ledger_.take(number_, chosen, routed_);
    lost_in_restart_ = 0;
    for (size_t i = 0; i < grid_.size(); ++i) {
      lost_in_restart_ += static_cast<uint64_t>(unsaved(i));
    }
  }

  const RoutingTrace& trace_;
  const TracePlacements& placements_;
  const ReplayOptions& options_;
  const ExpertGrid grid_;
  SaveLedger ledger_;
  std::vector<int64_t> routed_;  // since the beginning
  std::vector<moetrain::RankMask> masks_;
  std::vector<uint32_t> turns_;
  std::vector<double> risk_;      // by holders: the trainer's, which does not know dead_max
  uint64_t number_ = 0;           // of the newest snapshot
  uint64_t lost_in_restart_ = 0;  // by a restart from the newest snapshot
  Replay result_;
};

}  // namespace

Result<TracePlacements> plan_placements(const RoutingTrace& trace,
                                        const moetrain::LazarusOptions& options, uint32_t replan) {
  TracePlacements placements{.ranks = options.ranks, .replan = replan, .periods = {}};
  std::vector<uint64_t> loads(trace.grid.size(), 1);
  for (size_t sample = 0; sample < trace.samples.size(); sample += replan) {
    auto& layers = placements.periods.emplace_back();
    for (uint32_t layer = 0; layer < trace.grid.layers; ++layer) {
      const auto of_layer = std::span(loads).subspan(trace.grid.at(layer, 0), trace.grid.experts);
      CKPT_ASSIGN(LayerSlots slots, moetrain::lazarus_layer(of_layer, options));
      layers.push_back(std::move(slots));
    }
    std::fill(loads.begin(), loads.end(), 0);
    const size_t end = std::min(sample + replan, trace.samples.size());
    for (size_t at = sample; at < end; ++at) {
      for (size_t i = 0; i < loads.size(); ++i) {
        loads[i] += static_cast<uint64_t>(trace.samples[at][i]);
      }
    }
  }
  return placements;
}

Replay replay(const RoutingTrace& trace, const TracePlacements& placements,
              const ReplayOptions& options) {
  return Replayer(trace, placements, options).run();
}

}  // namespace bench
