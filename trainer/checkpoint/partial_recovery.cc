// The part of PartialCheckpoint that counts the loss of a recovery and chooses the next K from
// the loss.
#include <algorithm>
#include <numeric>

#include "formats/base/assert.h"
#include "trainer/checkpoint/partial_checkpoint.h"

namespace moetrain {

using ckpt::ErrorCode;
using ckpt::make_error;

namespace {

// For an expert whose durable version is unknown: as old as possible.
constexpr SaveLedger::Saved kOldestVersion{.snapshot = 1, .tokens = 0};

}  // namespace

Result<RecoveryLoss> PartialCheckpoint::resume(const PartialState& saved,
                                               std::span<const int64_t> routed,
                                               const ExpertStamps& stamps,
                                               std::span<const int64_t> in_memory) {
  CKPT_ASSERT(routed.size() == grid_.size());
  CKPT_ASSERT(in_memory.empty() || in_memory.size() == grid_.size());
  PltMeter::Lost lost = saved.lost;
  lost.restart.resize(grid_.size());
  lost.rollback.resize(grid_.size());
  CKPT_ASSIGN(PltMeter meter, PltMeter::resume(grid_, std::move(lost), routed));
  std::vector<SaveLedger::Saved> versions;
  std::vector<int64_t> held;
  for (size_t i = 0; i < grid_.size(); ++i) {
    CKPT_ASSIGN(const SaveLedger::Saved version, version_of(i, stamps, saved.snapshots));
    versions.push_back(version);
    held.push_back(version.tokens);
  }
  const PltMeter before = meter;
  RecoveryLoss loss;
  CKPT_ASSIGN(loss.tokens, meter.restarted(routed, held));  // checks the counts of the versions
  std::vector<int64_t> lost_now(grid_.size());
  for (size_t i = 0; i < grid_.size(); ++i) lost_now[i] = before.held(i, routed) - held[i];
  loss.plt = lost_proportion(grid_, lost_now, routed);

  meter_ = std::move(meter);
  memory_ledger_ = SaveLedger(versions);
  for (size_t i = 0; i < in_memory.size(); ++i) {
    if (in_memory[i] != 0) versions[i] = kOldestVersion;
  }
  ledger_ = SaveLedger(std::move(versions));
  snapshots_ = saved.snapshots;
  k_snapshot_ = 0;  // process-local: all ranks are told anew
  number_of_step_.clear();
  loss_k_ = saved.loss_k;
  loss_tokens_ = saved.loss_tokens;
  loss_since_ = saved.loss_since;
  loss_experts_ = saved.loss_experts;
  routed_before_.assign(routed.begin(), routed.end());
  // With k_auto K continues from its last value, since there is no requested initial value.
  const bool known = saved.k >= 1 && saved.k <= grid_.experts;
  k_ = options_.k_auto && saved.k_asked == 0 && known ? saved.k : experts_asked();
  recovered(known ? saved.k : k_, loss, grid_.size(), routed);
  return loss;
}

// Combines the stamps of an expert's two units: the older counts apply.
Result<SaveLedger::Saved> PartialCheckpoint::version_of(size_t expert, const ExpertStamps& stamps,
                                                        uint64_t snapshots) const {
  const ExpertStamp& weights = stamps.at(ExpertPart::kWeights, expert);
  const ExpertStamp& moments = stamps.at(ExpertPart::kOptimizer, expert);
  const auto [number, newer] = std::minmax(weights.snapshot, moments.snapshot);
  if (number < 1 || static_cast<uint64_t>(newer) > snapshots || moments.updates < 0) {
    return make_error(ErrorCode::kCorrupt,
                      "layers.{}.experts.{}: its version says it is of snapshot {}, the view is "
                      "of snapshot {}",
                      expert / grid_.experts, expert % grid_.experts, number, snapshots);
  }
  return SaveLedger::Saved{static_cast<uint64_t>(number), std::min(weights.tokens, moments.tokens),
                           static_cast<uint64_t>(std::min(weights.step, moments.step))};
}

void PartialCheckpoint::recovered(uint32_t k, const RecoveryLoss& loss, size_t experts,
                                  std::span<const int64_t> routed) {
  if (loss.tokens > 0) {
    loss_since_ = loss.since;
    loss_experts_ = static_cast<uint32_t>(experts);
  }
  if (loss.tokens > loss.since && k < grid_.experts) {
    loss_k_ = k;
    loss_tokens_ = loss.tokens - loss.since;
  }
  k_ = k_of_budget(options_.k_auto ? k_ : experts_asked(), routed);
}

uint32_t PartialCheckpoint::k_of_budget(uint32_t asked, std::span<const int64_t> routed) const {
  return k_within(options_.plt_budget, asked, expected_loss(routed));
}

Recovery PartialCheckpoint::expected_loss(std::span<const int64_t> routed) const {
  Recovery next{.k = loss_k_ == 0 ? experts_asked() : loss_k_,
                .experts = grid_.experts,
                .plt = meter_.plt(routed)};
  const int64_t all = std::accumulate(routed.begin(), routed.end(), int64_t{0});
  // Every layer has the same number of assignments, so this is the mean over the layers.
  if (all > 0) {
    const double share = growth_of_loss() / static_cast<double>(all);
    next.plt_of_it = static_cast<double>(loss_tokens_) * share;
    next.plt_since = static_cast<double>(loss_since_) * share;
  }
  return next;
}

// A smaller group has more experts per rank. Experts held by one failure domain alone are lost with
// it. If every domain has fewer of them than the last recovery lost, assume that several domains
// may fail at once again.
double PartialCheckpoint::growth_of_loss() const {
  if (!options_.survivors_continue || loss_experts_ == 0) return 1;
  const RankGroup ranks = group();
  std::vector<uint32_t> alone(ranks.domains());
  for (uint32_t layer = 0; layer < grid_.layers; ++layer) {
    for (const auto& holding : holders_of_experts(placement_, layer)) {
      if (ranks.domains_among(holding) == 1) ++alone[ranks.domain(holding.front())];
    }
  }
  const uint32_t most = *std::ranges::max_element(alone);
  return std::max(1.0, static_cast<double>(most) / loss_experts_);
}

Result<RecoveryLoss> PartialCheckpoint::roll_back(std::span<const uint32_t> experts,
                                                  const ExpertStamps& versions,
                                                  std::span<const int64_t> routed,
                                                  std::span<int64_t> updates,
                                                  std::span<const int64_t> in_memory) {
  CKPT_ASSERT(routed.size() == grid_.size() && updates.size() == grid_.size());
  CKPT_ASSERT(in_memory.empty() || in_memory.size() == grid_.size());
  PltMeter meter = meter_;
  std::vector<SaveLedger::Saved> back;
  std::vector<int64_t> lost_now(grid_.size());
  RecoveryLoss loss;
  for (const uint32_t expert : experts) {
    CKPT_ASSERT(expert < grid_.size());
    SaveLedger::Saved version;  // of an expert that was never saved: the initial state
    if (!versions.never_saved(expert)) {
      CKPT_ASSIGN(version, version_of(expert, versions, snapshots_));
    }
    CKPT_ASSIGN(const int64_t lost, meter.rolled_back(expert, routed, version.tokens));
    back.push_back(version);
    lost_now[expert] += lost;
    loss.tokens += lost;
    loss.since += std::min(lost, routed[expert] - routed_before_[expert]);
  }
  loss.plt = lost_proportion(grid_, lost_now, routed);

  meter_ = std::move(meter);
  for (size_t i = 0; i < experts.size(); ++i) {
    const bool on_disk = in_memory.empty() || in_memory[experts[i]] == 0;
    ledger_.restored(experts[i], on_disk ? back[i] : kOldestVersion);
    memory_ledger_.restored(experts[i], back[i]);
    updates[experts[i]] = versions.at(ExpertPart::kOptimizer, experts[i]).updates;
  }
  recovered(k_, loss, experts.size(), routed);
  return loss;
}

PartialHandover PartialCheckpoint::handover() const {
  PartialHandover handover{
      .state = state(), .saved = {}, .kept = {}, .routed_before = routed_before_, .recent = {}};
  handover.saved.reserve(ledger_.size());
  handover.kept.reserve(ledger_.size());
  for (size_t i = 0; i < ledger_.size(); ++i) {
    handover.saved.push_back(ledger_[i]);
    handover.kept.push_back(memory_ledger_[i]);
  }
  for (const auto& [step, number] : number_of_step_) handover.recent.push_back({step, number});
  return handover;
}

Status PartialCheckpoint::take_over(const PartialHandover& handover,
                                    std::span<const int64_t> routed) {
  const PartialState& state = handover.state;
  if (handover.saved.size() != grid_.size() || handover.kept.size() != grid_.size() ||
      handover.routed_before.size() != grid_.size() || state.k < 1 || state.k > grid_.experts ||
      state.loss_k > grid_.experts) {
    return make_error(ErrorCode::kCorrupt, "handover: {} experts saved, K is {}; the model has {}",
                      handover.saved.size(), state.k, grid_.size());
  }
  CKPT_ASSIGN(meter_, PltMeter::resume(grid_, state.lost, routed));
  ledger_ = SaveLedger(handover.saved);
  memory_ledger_ = SaveLedger(handover.kept);
  snapshots_ = state.snapshots;
  k_ = state.k;
  k_snapshot_ = 0;  // process-local: all ranks are told anew
  loss_k_ = state.loss_k;
  loss_tokens_ = state.loss_tokens;
  loss_since_ = state.loss_since;
  loss_experts_ = state.loss_experts;
  routed_before_ = handover.routed_before;
  number_of_step_.clear();
  for (const PartialHandover::Recent& recent : handover.recent) {
    number_of_step_[recent.step] = recent.snapshot;
  }
  return {};
}

}  // namespace moetrain
