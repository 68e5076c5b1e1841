#include "trainer/checkpoint/partial_checkpoint.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "formats/base/assert.h"
#include "trainer/checkpoint/plan.h"
#include "trainer/placement/recovery.h"

namespace moetrain {

using ckpt::ErrorCode;
using ckpt::make_error;

namespace {

constexpr std::array<std::string_view, 3> kPartNames = {"weights", "optimizer", "both"};

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
  const bool memory = options.k_snapshot != 0;
  const uint32_t written = options.is_partial() ? options.k : experts;  // 0: not known yet
  if (options.k_snapshot_auto && !options.is_partial()) {
    return make_error(ErrorCode::kInvalidArgument,
                      "--experts-per-snapshot auto: with --experts-per-checkpoint all there are no "
                      "others to keep in memory");
  }
  const bool enough = options.k_snapshot == kAllExperts ||
                      (options.k_snapshot >= written && options.k_snapshot <= experts);
  if (memory && !enough) {
    return make_error(ErrorCode::kInvalidArgument,
                      "--experts-per-snapshot {}: must be at least --experts-per-checkpoint ({}), "
                      "and at most the {} experts of a layer",
                      options.k_snapshot, written == 0 ? "auto" : std::to_string(written), experts);
  }
  if (options.k == 0) return {};  // with k_auto, K is chosen so that the bound holds
  const uint32_t bound = options.staleness_max != 0 ? options.staleness_max
                                                    : default_staleness_max(experts, options.k);
  Status checked = check_selection({options.selector, options.k, bound}, experts);
  if (checked.ok()) return checked;
  std::string flags = fmt::format("--experts-per-checkpoint {}", options.k);
  if (options.staleness_max != 0)
    flags += fmt::format(" --staleness-max {}", options.staleness_max);
  return make_error(checked.error().code, "{}: {}", flags, checked.error().message);
}

PartialCheckpoint::PartialCheckpoint(const std::vector<StateUnit>& units,
                                     const ComputePlacement& placement,
                                     const PartialOptions& options, ExpertState experts)
    : units_(units),
      placement_(placement),
      options_(options),
      experts_(experts),
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
  memory_ledger_ = ledger_;
  snapshots_ = 0;
  k_ = experts_asked();
  k_snapshot_ = 0;
  loss_k_ = loss_experts_ = 0;
  loss_tokens_ = loss_since_ = 0;
  routed_before_.assign(grid_.size(), 0);
  number_of_step_.clear();
}

SelectionOptions PartialCheckpoint::selection() const {
  // The bound follows from the smallest possible K; a larger K meets it, too.
  const uint32_t k_least = options_.k_auto ? 1 : experts_asked();
  const uint32_t bound = options_.staleness_max != 0
                             ? options_.staleness_max
                             : default_staleness_max(grid_.experts, k_least);
  return {options_.selector, k_, bound};
}

RankGroup PartialCheckpoint::group() const {
  CKPT_ASSERT(domain_of_rank_.empty() || domain_of_rank_.size() == placement_.ranks);
  return {placement_.ranks, domain_of_rank_};
}

PartialCheckpoint::Placed PartialCheckpoint::placed(uint32_t k) const {
  const RankGroup ranks = group();
  Placed placed;
  placed.turn.reserve(grid_.size());
  placed.risk.reserve(grid_.size());
  for (uint32_t layer = 0; layer < grid_.layers; ++layer) {
    const auto of_layer = turns(placement_.slots[layer], grid_.experts, layer, k);
    placed.turn.insert(placed.turn.end(), of_layer.begin(), of_layer.end());
    for (const auto& holding : holders_of_experts(placement_, layer)) {
      placed.risk.push_back(options_.survivors_continue
                                ? failure_takes_all(ranks.domains(), ranks.domains_among(holding))
                                : 1);
    }
  }
  return placed;
}

// Chooses the experts to write.
std::vector<uint32_t> PartialCheckpoint::choose(const Now& now) const {
  const Placed at = placed(k_);
  return choose_experts(grid_, selection(),
                        [&](size_t expert) { return candidate(expert, ledger_, now, at); });
}

ExpertCandidate PartialCheckpoint::candidate(size_t expert, const SaveLedger& ledger,
                                             const Now& now, const Placed& at) const {
  const SaveLedger::Saved& saved = ledger[expert];
  uint64_t age = snapshots_ + 1 - saved.snapshot;
  // Age in intervals, in case snapshots failed or used to be less frequent.
  const uint64_t steps = now.step - std::min(saved.step, now.step);
  if (interval_ != 0) age = std::max(age, (steps + interval_ - 1) / interval_);
  return {.unsaved_tokens = meter_.held(expert, now.routed) - saved.tokens,
          .age = age,
          .loss_probability = at.risk[expert],
          .turn = at.turn[expert]};
}

uint32_t PartialCheckpoint::k_snapshot() const {
  if (options_.k_snapshot == 0) return k_;
  if (options_.k_snapshot_auto) return std::clamp(k_snapshot_, k_, grid_.experts);
  const uint64_t asked = std::min(options_.k_snapshot, grid_.experts);
  // With k_auto there is no requested K from which both could have grown.
  const uint64_t grown = options_.k_auto ? asked : asked * k_ / experts_asked();
  return static_cast<uint32_t>(std::clamp<uint64_t>(grown, k_, grid_.experts));
}

// Chooses the experts that stay in memory: the next ones in order that are not written.
std::vector<uint32_t> PartialCheckpoint::choose_more(const std::vector<uint32_t>& written,
                                                     const Now& now) const {
  std::vector<bool> taken(grid_.size());
  for (const uint32_t expert : written) taken[expert] = true;
  const Placed place = placed(k_snapshot());
  std::vector<uint32_t> chosen;
  for (uint32_t layer = 0; layer < grid_.layers; ++layer) {
    std::vector<ExpertCandidate> candidates;
    std::vector<uint32_t> positions;
    for (uint32_t expert = 0; expert < grid_.experts; ++expert) {
      const auto at = static_cast<uint32_t>(grid_.at(layer, expert));
      if (taken[at]) continue;
      candidates.push_back(candidate(at, memory_ledger_, now, place));
      positions.push_back(at);
    }
    const auto left = static_cast<uint32_t>(positions.size());
    const uint32_t more = std::min(k_snapshot() - k_, left);  // the bound may have written more
    if (more == 0) continue;
    const SelectionOptions how{options_.selector, more, default_staleness_max(left, more)};
    for (const uint32_t one : select_experts(how, candidates)) chosen.push_back(positions[one]);
  }
  return chosen;
}

void PartialCheckpoint::add_memory_units(Plan& plan) const {
  const std::vector<uint32_t> with = units_with(plan.memory_experts);
  std::set_difference(with.begin(), with.end(), plan.units.begin(), plan.units.end(),
                      std::back_inserter(plan.memory_units));
  std::vector<uint32_t> all;
  std::merge(plan.units.begin(), plan.units.end(), plan.memory_units.begin(),
             plan.memory_units.end(), std::back_inserter(all));
  plan.units = std::move(all);
}

bool PartialCheckpoint::may_omit(const StateUnit& unit) const {
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
    if (!may_omit(unit) || taken[grid_.at(*unit.layer, *unit.expert)]) ids.push_back(id);
  }
  return ids;
}

PartialCheckpoint::Plan PartialCheckpoint::next(uint64_t step, const ExpertProgress& progress,
                                                bool full, ExpertStamps& stamps) {
  CKPT_ASSERT(progress.routed.size() == grid_.size() && progress.updates.size() == grid_.size());
  Plan plan;
  if (!options_.k_auto) k_ = k_of_budget(experts_asked(), progress.routed);
  std::vector<int64_t> held;
  held.reserve(grid_.size());
  for (size_t i = 0; i < grid_.size(); ++i) held.push_back(meter_.held(i, progress.routed));
  if (full || k_ == grid_.experts || !ledger_.all_saved()) {
    plan.experts.resize(grid_.size());
    std::iota(plan.experts.begin(), plan.experts.end(), 0u);
  } else {
    const Now now{step, progress.routed};
    plan.experts = choose(now);
    if (k_snapshot() > k_) plan.memory_experts = choose_more(plan.experts, now);
  }
  ++snapshots_;
  ledger_.take(snapshots_, plan.experts, held, step);
  std::vector<uint32_t> both = plan.experts;
  both.insert(both.end(), plan.memory_experts.begin(), plan.memory_experts.end());
  memory_ledger_.take(snapshots_, both, held, step);
  routed_before_.assign(progress.routed.begin(), progress.routed.end());
  number_of_step_[step] = snapshots_;
  if (number_of_step_.size() > SaveLedger::kUndoMax) {
    number_of_step_.erase(number_of_step_.begin());
  }
  plan.units = units_with(plan.experts);
  if (!plan.memory_experts.empty()) add_memory_units(plan);
  stamp(step, plan.units, held, progress.updates, stamps);
  plan.fragments =
      snapshot_plan(units_, plan.units, make_ownership(experts_, placement_), options_.dense);
  // By slab: written units first, so that the disk is busy while the rest is copied.
  std::stable_partition(plan.fragments.begin(), plan.fragments.end(), [&](const auto& fragment) {
    return !std::binary_search(plan.memory_units.begin(), plan.memory_units.end(), fragment.unit);
  });
  return plan;
}

void PartialCheckpoint::stamp(uint64_t step, const std::vector<uint32_t>& units,
                              const std::vector<int64_t>& held, std::span<const int64_t> updates,
                              ExpertStamps& stamps) const {
  for (const uint32_t id : units) {
    const StateUnit& unit = units_[id];
    if (!unit.expert) continue;
    const size_t at = grid_.at(*unit.layer, *unit.expert);
    stamps.of(unit) = {.snapshot = static_cast<int64_t>(snapshots_),
                       .tokens = held[at],
                       .updates = updates[at],
                       .step = static_cast<int64_t>(step)};
  }
}

void PartialCheckpoint::set_k(uint32_t k) {
  CKPT_ASSERT(options_.k_auto && k >= 1 && k <= grid_.experts);
  k_ = k;
}

void PartialCheckpoint::set_k_snapshot(uint32_t k) {
  CKPT_ASSERT(options_.k_snapshot_auto && k <= grid_.experts);
  k_snapshot_ = k;
}

void PartialCheckpoint::failed(uint64_t step) {
  const auto number = number_of_step_.find(step);
  if (number == number_of_step_.end()) return;
  for (SaveLedger* ledger : {&ledger_, &memory_ledger_}) {
    if (!ledger->fail(number->second)) ledger->forget(number->second);
  }
  number_of_step_.erase(number);
}

std::vector<int64_t> PartialCheckpoint::lost() const {
  std::vector<int64_t> lost = meter_.lost().restart;
  const std::vector<int64_t>& rollback = meter_.lost().rollback;
  for (size_t i = 0; i < lost.size(); ++i) lost[i] += rollback[i];
  if (std::ranges::count(lost, 0) == std::ssize(lost)) lost.clear();
  return lost;
}

PartialState PartialCheckpoint::state() const {
  return {.snapshots = snapshots_,
          .k = k_,
          .k_asked = options_.k,
          .lost = meter_.lost(),
          .loss_k = loss_k_,
          .loss_tokens = loss_tokens_,
          .loss_since = loss_since_,
          .loss_experts = loss_experts_};
}

}  // namespace moetrain
