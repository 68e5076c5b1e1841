#include "trainer/partial/age_trial.h"

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
  const auto is_loss = [](double tokens) { return std::isfinite(tokens) && tokens >= 0; };
  if (is_loss(score.loss_without) && is_loss(score.loss_with)) return {};
  return ckpt::make_error(ckpt::ErrorCode::kInvalidArgument,
                          "a failure that takes {} tokens, or {} where age is weighed",
                          score.loss_without, score.loss_with);
}

void AgeTrial::begin(const SaveLedger& saved, const AgeTrialScore& score) {
  ledgers_.fill(saved);
  score_ = score;
}

void AgeTrial::take(const Snapshot& snapshot, const ExpertGrid& grid,
                    const SelectionOptions& options, const CandidateOf& candidate_of) {
  std::array<double, 2> losses = {};
  for (size_t rule = 0; rule < ledgers_.size(); ++rule) {
    for (size_t expert = 0; expert < grid.size(); ++expert) {
      const ExpertCandidate candidate = candidate_of(ledgers_[rule], expert);
      losses[rule] += static_cast<double>(candidate.unsaved_tokens) * candidate.loss_probability;
    }
    SelectionOptions how = options;
    how.weigh_age = rule == 1;
    const auto chosen = choose_experts(grid, how, ledgers_[rule], candidate_of);
    ledgers_[rule].take(snapshot.number, chosen, snapshot.held, snapshot.step);
  }
  judge(losses, default_staleness_max(grid.experts, options.k));
}

void AgeTrial::judge(const std::array<double, 2>& losses, double snapshots_mean) {
  if (score_.loss_without == 0 && score_.loss_with == 0) {
    score_.loss_without = losses[0];
    score_.loss_with = losses[1];
  }
  score_.loss_without += (losses[0] - score_.loss_without) / snapshots_mean;
  score_.loss_with += (losses[1] - score_.loss_with) / snapshots_mean;
  const double margin = score_.weigh_age ? 0 : kMarginMin;
  score_.weigh_age = score_.loss_with < score_.loss_without * (1 - margin);
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
