#include "trainer/checkpoint/partial_checkpoint.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "formats/base/assert.h"
#include "trainer/checkpoint/plan.h"

namespace moetrain {

using ckpt::ErrorCode;
using ckpt::make_error;

namespace {

constexpr std::array<std::string_view, 3> kPartNames = {"weights", "optimizer", "both"};

ExpertPart part_of(const StateUnit& unit) {
  return unit.part == "weights" ? ExpertPart::kWeights : ExpertPart::kOptimizer;
}

}  // namespace

std::string_view partial_parts_name(PartialParts parts) {
  return kPartNames.at(static_cast<size_t>(parts));
}

Result<PartialParts> parse_partial_parts(std::string_view name) {
  const auto found = std::find(kPartNames.begin(), kPartNames.end(), name);
  if (found != kPartNames.end()) return static_cast<PartialParts>(found - kPartNames.begin());
  return make_error(ErrorCode::kInvalidArgument,
                    "partial parts '{}': must be weights, optimizer or both", name);
}

Status validate(const PartialOptions& options, uint32_t experts) {
  if (!(options.plt_budget >= 0 && options.plt_budget <= 1)) {
    return make_error(ErrorCode::kInvalidArgument, "--plt-budget {}: must be from 0 to 1",
                      options.plt_budget);
  }
  if (options.k == 0) return {};
  const uint32_t bound = options.staleness_max != 0 ? options.staleness_max
                                                    : default_staleness_max(experts, options.k);
  Status checked = check_selection({options.selector, options.k, bound}, experts);
  if (checked.ok()) return checked;
  return make_error(checked.error().code, "--experts-per-checkpoint {} --staleness-max {}: {}",
                    options.k, options.staleness_max, checked.error().message);
}

PartialCheckpoint::PartialCheckpoint(const std::vector<StateUnit>& units,
                                     const ExpertPlacement& placement,
                                     const PartialOptions& options)
    : units_(units),
      placement_(placement),
      options_(options),
      grid_{placement.layers(), placement.experts},
      meter_(grid_) {
  CKPT_ASSERT(validate(options, grid_.experts).ok());
  start();
}

uint32_t PartialCheckpoint::experts_asked() const {
  return options_.k == 0 ? grid_.experts : options_.k;
}

void PartialCheckpoint::start() {
  meter_ = PltMeter(grid_);
  ledger_ = SaveLedger(std::vector<SaveLedger::Saved>(grid_.size()));
  snapshots_ = 0;
  k_ = experts_asked();
  number_of_step_.clear();
}

Result<RecoveryLoss> PartialCheckpoint::resume(const PartialState& saved,
                                               std::span<const int64_t> routed,
                                               const ExpertStamps& stamps) {
  CKPT_ASSERT(routed.size() == grid_.size());
  PltMeter::Lost lost = saved.lost;
  lost.restart.resize(grid_.size());
  lost.rollback.resize(grid_.size());
  CKPT_ASSIGN(PltMeter meter, PltMeter::resume(grid_, std::move(lost), routed));
  std::vector<SaveLedger::Saved> versions;
  std::vector<int64_t> held;
  for (size_t i = 0; i < grid_.size(); ++i) {
    const ExpertStamp& weights = stamps.at(ExpertPart::kWeights, i);
    const ExpertStamp& moments = stamps.at(ExpertPart::kOptimizer, i);
    held.push_back(std::min(weights.tokens, moments.tokens));
    const auto [number, newer] = std::minmax(weights.snapshot, moments.snapshot);
    if (number < 1 || static_cast<uint64_t>(newer) > saved.snapshots || moments.updates < 0) {
      return make_error(ErrorCode::kCorrupt,
                        "layers.{}.experts.{}: its version says it is of snapshot {}, the view is "
                        "of snapshot {}",
                        i / grid_.experts, i % grid_.experts, number, saved.snapshots);
    }
    versions.push_back({static_cast<uint64_t>(number), held.back()});
  }
  const PltMeter before = meter;
  RecoveryLoss loss;
  CKPT_ASSIGN(loss.tokens, meter.restarted(routed, held));  // checks what the versions say
  std::vector<int64_t> lost_now(grid_.size());
  for (size_t i = 0; i < grid_.size(); ++i) lost_now[i] = before.held(i, routed) - held[i];
  loss.plt = lost_proportion(grid_, lost_now, routed);

  meter_ = std::move(meter);
  ledger_ = SaveLedger(std::move(versions));
  snapshots_ = saved.snapshots;
  number_of_step_.clear();
  // K goes on growing from where it was, unless another one is asked for now.
  const bool goes_on = saved.k_asked == options_.k && saved.k >= 1 && saved.k <= grid_.experts;
  k_ = k_after({.k = goes_on ? saved.k : experts_asked(),
                .experts = grid_.experts,
                .plt = meter_.plt(routed),
                .plt_of_it = loss.plt},
               options_.plt_budget);
  return loss;
}

PartialHandover PartialCheckpoint::handover() const {
  PartialHandover handover{.state = state(), .saved = {}};
  handover.saved.reserve(ledger_.size());
  for (size_t i = 0; i < ledger_.size(); ++i) handover.saved.push_back(ledger_[i]);
  return handover;
}

Status PartialCheckpoint::take_over(const PartialHandover& handover,
                                    std::span<const int64_t> routed) {
  const PartialState& state = handover.state;
  if (handover.saved.size() != grid_.size() || state.k < 1 || state.k > grid_.experts) {
    return make_error(ErrorCode::kCorrupt, "handover: {} experts saved, K is {}; the model has {}",
                      handover.saved.size(), state.k, grid_.size());
  }
  CKPT_ASSIGN(meter_, PltMeter::resume(grid_, state.lost, routed));
  ledger_ = SaveLedger(handover.saved);
  snapshots_ = state.snapshots;
  k_ = state.k;
  number_of_step_.clear();
  return {};
}

Result<int64_t> PartialCheckpoint::rolled_back(size_t expert, std::span<const int64_t> routed,
                                               const ExpertStamps& stamps) {
  const ExpertStamp& weights = stamps.at(ExpertPart::kWeights, expert);
  const ExpertStamp& moments = stamps.at(ExpertPart::kOptimizer, expert);
  const auto [number, newer] = std::minmax(weights.snapshot, moments.snapshot);
  if (number < 0 || static_cast<uint64_t>(newer) > snapshots_ || moments.updates < 0) {
    return make_error(ErrorCode::kCorrupt,
                      "layers.{}.experts.{}: its version says it is of snapshot {}, the run is at "
                      "snapshot {}",
                      expert / grid_.experts, expert % grid_.experts, number, snapshots_);
  }
  const int64_t held = std::min(weights.tokens, moments.tokens);
  CKPT_ASSIGN(const int64_t tokens, meter_.rolled_back(expert, routed, held));
  ledger_.set(expert, {.snapshot = static_cast<uint64_t>(number), .tokens = held});
  return tokens;
}

SelectionOptions PartialCheckpoint::selection() const {
  // The bound is that of the K that was asked for; a larger K keeps it all the more.
  const uint32_t bound = options_.staleness_max != 0
                             ? options_.staleness_max
                             : default_staleness_max(grid_.experts, experts_asked());
  return {options_.selector, k_, bound};
}

std::vector<uint32_t> PartialCheckpoint::choose(std::span<const int64_t> routed) const {
  std::vector<uint32_t> chosen;
  for (uint32_t layer = 0; layer < grid_.layers; ++layer) {
    const auto turn = turns(placement_.slots[layer], grid_.experts, layer, k_);
    std::vector<ExpertCandidate> candidates;
    for (uint32_t expert = 0; expert < grid_.experts; ++expert) {
      const size_t at = grid_.at(layer, expert);
      candidates.push_back({.unsaved_tokens = meter_.held(at, routed) - ledger_[at].tokens,
                            .age = snapshots_ + 1 - ledger_[at].snapshot,
                            .loss_probability = 1,
                            .turn = turn[expert]});
    }
    for (const uint32_t expert : select_experts(selection(), candidates)) {
      chosen.push_back(static_cast<uint32_t>(grid_.at(layer, expert)));
    }
  }
  return chosen;
}

bool PartialCheckpoint::is_chosen_about(const StateUnit& unit) const {
  if (!unit.expert) return false;
  switch (options_.parts) {
    case PartialParts::kWeights:
      return part_of(unit) == ExpertPart::kWeights;
    case PartialParts::kOptimizer:
      return part_of(unit) == ExpertPart::kOptimizer;
    case PartialParts::kBoth:
      return true;
  }
  CKPT_ASSERT(false);
}

std::vector<uint32_t> PartialCheckpoint::units_with(const std::vector<uint32_t>& experts) const {
  std::vector<bool> taken(grid_.size());
  for (const uint32_t expert : experts) taken[expert] = true;
  std::vector<uint32_t> ids;
  for (uint32_t id = 0; id < units_.size(); ++id) {
    const StateUnit& unit = units_[id];
    if (!is_chosen_about(unit) || taken[grid_.at(*unit.layer, *unit.expert)]) ids.push_back(id);
  }
  return ids;
}

PartialCheckpoint::Plan PartialCheckpoint::next(uint64_t step, const ExpertProgress& progress,
                                                bool full, ExpertStamps& stamps) {
  CKPT_ASSERT(progress.routed.size() == grid_.size() && progress.updates.size() == grid_.size());
  Plan plan;
  if (full || k_ == grid_.experts || !ledger_.all_saved()) {
    plan.experts.resize(grid_.size());
    std::iota(plan.experts.begin(), plan.experts.end(), 0u);
  } else {
    plan.experts = choose(progress.routed);
  }
  ++snapshots_;
  std::vector<int64_t> held;
  held.reserve(grid_.size());
  for (size_t i = 0; i < grid_.size(); ++i) held.push_back(meter_.held(i, progress.routed));
  ledger_.take(snapshots_, plan.experts, held);
  number_of_step_[step] = snapshots_;
  if (number_of_step_.size() > SaveLedger::kUndoMax) {
    number_of_step_.erase(number_of_step_.begin());
  }
  plan.units = units_with(plan.experts);
  for (const uint32_t id : plan.units) {
    const StateUnit& unit = units_[id];
    if (!unit.expert) continue;
    const size_t at = grid_.at(*unit.layer, *unit.expert);
    stamps.at(part_of(unit), at) = {static_cast<int64_t>(snapshots_), held[at],
                                    progress.updates[at]};
  }
  plan.fragments = snapshot_plan(units_, plan.units, placement_, options_.dense);
  return plan;
}

void PartialCheckpoint::failed(uint64_t step) {
  const auto number = number_of_step_.find(step);
  if (number == number_of_step_.end()) return;
  ledger_.fail(number->second);
  number_of_step_.erase(number);
}

PartialState PartialCheckpoint::state() const {
  return {.snapshots = snapshots_, .k = k_, .k_asked = options_.k, .lost = meter_.lost()};
}

}  // namespace moetrain
