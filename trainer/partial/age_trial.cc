#include "trainer/partial/age_trial.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace moetrain {

std::vector<uint32_t> choose_experts(const ExpertGrid& grid, const SelectionOptions& options,
                                     const SaveLedger& ledger, const CandidateOf& candidate_of) {
  std::vector<uint32_t> chosen;
  chosen.reserve(size_t{grid.layers} * options.k);
  std::vector<ExpertCandidate> candidates(grid.experts);
  for (uint32_t layer = 0; layer < grid.layers; ++layer) {
    for (uint32_t expert = 0; expert < grid.experts; ++expert) {
      candidates[expert] = candidate_of(ledger, grid.at(layer, expert));
    }
    const uint32_t count = k_within_bound(options, candidates);
    for (const uint32_t expert : select_experts(options, candidates, count)) {
      chosen.push_back(static_cast<uint32_t>(grid.at(layer, expert)));
    }
  }
  return chosen;
}

Status check_score(const AgeTrialScore& score) {
  const auto is_sum = [](double sum) { return std::isfinite(sum) && sum >= 0; };
  if (!is_sum(score.judged) || !is_sum(score.lost) || !std::isfinite(score.ahead)) {
    return ckpt::make_error(ckpt::ErrorCode::kInvalidArgument,
                            "a trial of {} rounds that is {} tokens ahead of {}", score.judged,
                            score.ahead, score.lost);
  }
  if (score.stops > AgeTrial::kStopsMax || score.weight > AgeWeight::kFull) {
    return ckpt::make_error(ckpt::ErrorCode::kInvalidArgument,
                            "a trial stopped {} times that follows rule {}", score.stops,
                            static_cast<uint32_t>(score.weight));
  }
  for (const AgeTrialScore::Rule& rule : score.rules) {
    if (is_sum(rule.recent) && std::isfinite(rule.ahead) && is_sum(rule.behind_max)) continue;
    return ckpt::make_error(ckpt::ErrorCode::kInvalidArgument,
                            "a rule that loses {} tokens, is {} ahead and was {} behind",
                            rule.recent, rule.ahead, rule.behind_max);
  }
  return {};
}

void AgeTrial::begin(const SaveLedger& saved, const AgeTrialScore& score) {
  ledgers_.fill(saved);
  score_ = score;
}

void AgeTrial::take(const Snapshot& snapshot, const ExpertGrid& grid,
                    const SelectionOptions& options, const CandidateOf& candidate_of) {
  Losses losses = {};
  for (size_t which = 0; which < ledgers_.size(); ++which) {
    for (size_t expert = 0; expert < grid.size(); ++expert) {
      const ExpertCandidate candidate = candidate_of(ledgers_[which], expert);
      losses[which] += static_cast<double>(candidate.unsaved_tokens) * candidate.loss_probability;
    }
  }
  judge(losses, (grid.experts + options.k - 1) / options.k);
  for (size_t which = 0; which < ledgers_.size(); ++which) {
    SelectionOptions how = options;
    how.age_weight = which == kFollowed ? score_.weight : static_cast<AgeWeight>(which);
    const auto chosen = choose_experts(grid, how, ledgers_[which], candidate_of);
    ledgers_[which].take(snapshot.number, chosen, snapshot.held, snapshot.step);
  }
}

void AgeTrial::judge(const Losses& losses, uint32_t round) {
  const double kept = 1 - 1 / (4.0 * round);
  score_.judged += 1 / std::max<double>(round, kSnapshotsMin);
  score_.lost += losses[0];
  score_.ahead += losses[0] - losses[kFollowed];
  for (size_t i = 0; i < kRules; ++i) {
    AgeTrialScore::Rule& rule = score_.rules[i];
    rule.recent = rule.recent * kept + losses[i];
    rule.ahead += losses[0] - losses[i];
    rule.behind_max = std::max(rule.behind_max, -rule.ahead);
  }
  const double debt_max = std::max(rule(score_.weight).behind_max, kDebtMax * score_.lost);
  if (score_.weight != AgeWeight::kNone && to_spend() < -debt_max) {
    score_.weight = AgeWeight::kNone;
    score_.stops = std::min(score_.stops + 1, kStopsMax);
  }
  score_.weight = judged_weight();
}

AgeWeight AgeTrial::judged_weight() const {
  AgeWeight weight = score_.weight;
  if (rule(weight).recent > rule(AgeWeight::kNone).recent) weight = AgeWeight::kNone;
  const bool root_is_best = rule(AgeWeight::kRoot).recent < rule(AgeWeight::kFull).recent;
  if (weight == AgeWeight::kFull && root_is_best) weight = AgeWeight::kRoot;
  if (weight == AgeWeight::kNone && is_better(AgeWeight::kRoot)) weight = AgeWeight::kRoot;
  if (!root_is_best && is_better(AgeWeight::kFull)) weight = AgeWeight::kFull;
  return weight;
}

// By enough to change over to it, and paid for.
bool AgeTrial::is_better(AgeWeight weight) const {
  const AgeTrialScore::Rule& tried = rule(weight);
  const double price = std::ldexp(tried.behind_max, static_cast<int>(score_.stops));
  return score_.judged >= 1 && tried.recent < rule(AgeWeight::kNone).recent * (1 - kMarginMin) &&
         tried.ahead >= price && to_spend() >= price;
}

void AgeTrial::take_all(const Snapshot& snapshot) {
  std::vector<uint32_t> all(snapshot.held.size());
  std::iota(all.begin(), all.end(), 0U);
  for (SaveLedger& ledger : ledgers_) {
    ledger.take(snapshot.number, all, snapshot.held, snapshot.step);
  }
}

void AgeTrial::fail(uint64_t snapshot) {
  for (SaveLedger& ledger : ledgers_) {
    if (!ledger.fail(snapshot)) ledger.forget(snapshot);
  }
}

void AgeTrial::came_back(size_t expert, const SaveLedger::Saved& version) {
  for (SaveLedger& ledger : ledgers_) ledger.came_back(expert, version);
}

}  // namespace moetrain
