#include "trainer/simulate/expert_ages.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "formats/base/assert.h"
#include "trainer/placement/recovery.h"

namespace moetrain::simulate {

ExpertAges::ExpertAges(const Options& options)
    : options_(options),
      routed_(options.grid.size(), 0),
      meter_(options.grid),
      ledger_(std::vector<SaveLedger::Saved>(options.grid.size())),
      risk_(options.grid.size(), 1) {}

std::shared_ptr<const ExpertAges::Version> ExpertAges::beginning() const {
  auto version = std::make_shared<Version>();
  version->routed.resize(options_.grid.size());
  version->memory.resize(options_.grid.size());
  version->saved.resize(options_.grid.size());
  version->lost = PltMeter(options_.grid).lost();
  return version;
}

void ExpertAges::train(uint64_t steps, uint64_t ranks,
                       const std::vector<std::vector<uint64_t>>& loads) {
  const auto times = static_cast<int64_t>(steps * ranks);
  for (uint32_t layer = 0; layer < options_.grid.layers; ++layer) {
    for (uint32_t expert = 0; expert < options_.grid.experts; ++expert) {
      routed_[options_.grid.at(layer, expert)] +=
          static_cast<int64_t>(loads[layer][expert]) * times;
    }
  }
}

void ExpertAges::placed(const Groups& groups) {
  uint32_t nodes = 0;
  std::vector<uint32_t> held(options_.grid.size(), 0);
  for (const Group& group : groups) {
    nodes += static_cast<uint32_t>(group.nodes.size());
    for (size_t expert = 0; expert < held.size(); ++expert) {
      held[expert] += static_cast<uint32_t>(group.plan->holders[expert].size());
    }
  }
  std::map<uint32_t, double> of_held;  // few different numbers of holders
  for (size_t expert = 0; expert < held.size(); ++expert) {
    const auto [risk, added] = of_held.try_emplace(held[expert]);
    if (added) risk->second = failure_takes_all(nodes, held[expert]);
    risk_[expert] = risk->second;
  }
  turns_.clear();
  turns_.reserve(options_.grid.layers);
  for (uint32_t layer = 0; layer < options_.grid.layers; ++layer) {
    turns_.push_back(
        turns(groups.front().plan->layers[layer], options_.grid.experts, layer, options_.k));
  }
}

std::shared_ptr<const ExpertAges::Version> ExpertAges::snapshot(size_t& experts) {
  ++snapshots_;
  const ExpertGrid& grid = options_.grid;
  std::vector<uint32_t> taken;
  if (snapshots_ == 1) {
    taken.resize(grid.size());
    std::iota(taken.begin(), taken.end(), 0U);
  } else {
    taken.reserve(size_t{grid.layers} * options_.k);
    const SelectionOptions options{options_.selector, options_.k,
                                   default_staleness_max(grid.experts, options_.k)};
    std::vector<ExpertCandidate> candidates(grid.experts);
    for (uint32_t layer = 0; layer < grid.layers; ++layer) {
      for (uint32_t expert = 0; expert < grid.experts; ++expert) {
        const size_t at = grid.at(layer, expert);
        candidates[expert] = {meter_.held(at, routed_) - ledger_[at].tokens,
                              snapshots_ - ledger_[at].snapshot, risk_[at], turns_[layer][expert]};
      }
      for (const uint32_t expert : select_experts(options, candidates)) {
        taken.push_back(static_cast<uint32_t>(grid.at(layer, expert)));
      }
    }
  }
  std::vector<int64_t> held(grid.size());
  for (size_t at = 0; at < grid.size(); ++at) held[at] = meter_.held(at, routed_);
  ledger_.take(snapshots_, taken, held);
  experts = taken.size();

  auto version = std::make_shared<Version>();
  version->snapshot = snapshots_;
  version->routed = routed_;
  version->lost = meter_.lost();
  version->saved.reserve(grid.size());
  for (size_t at = 0; at < grid.size(); ++at) version->saved.push_back(ledger_[at]);
  if (options_.memory_holds_all) {
    version->memory = std::move(held);
  } else {
    version->memory.reserve(grid.size());
    for (const SaveLedger::Saved& saved : version->saved) version->memory.push_back(saved.tokens);
  }
  return version;
}

void ExpertAges::rewind(const Version& view, std::span<const int64_t> held) {
  routed_ = view.routed;
  Result<PltMeter> meter = PltMeter::resume(options_.grid, view.lost, routed_);
  CKPT_ASSERT(meter.ok());
  meter_ = std::move(*meter);
  const Result<int64_t> lost = meter_.restarted(routed_, held);
  CKPT_ASSERT(lost.ok());
  ledger_ = SaveLedger(view.saved);  // what is newer is not of this history
}

void ExpertAges::roll_back(uint32_t expert, const Version& version) {
  const Result<int64_t> lost = meter_.rolled_back(expert, routed_, version.memory[expert]);
  CKPT_ASSERT(lost.ok());
  std::vector<SaveLedger::Saved> saved;
  saved.reserve(ledger_.size());
  for (size_t at = 0; at < ledger_.size(); ++at) saved.push_back(ledger_[at]);
  saved[expert] = version.saved[expert];
  ledger_ = SaveLedger(std::move(saved));
}

}  // namespace moetrain::simulate
