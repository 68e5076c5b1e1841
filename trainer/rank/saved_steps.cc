#include "trainer/rank/saved_steps.h"

#include <utility>

namespace moetrain {

void SavedSteps::begin_epoch(bool survivors_continue) {
  for (const uint64_t step : failed_) not_saved(step);
  for (const uint64_t step : lost_) not_saved(step);
  failed_.clear();
  if (!survivors_continue) lost_.clear();
  retake_ = false;
}

void SavedSteps::resumed() {
  continues_lineage_ = false;
  newest_ = progress_.step;
  failed_.clear();
  lost_.clear();
}

void SavedSteps::lineage_continued() {
  continues_lineage_ = true;
  // The rank whose knowledge all have taken over may not know some of these snapshots. Then their
  // failure has no effect.
  std::erase_if(lost_, [this](uint64_t step) { return !partial_.tracks_step(step); });
}

void SavedSteps::failed(bool unanswered) {
  failed_.insert(progress_.step);
  retake_ = retake_ || unanswered;
}

void SavedSteps::retry_save() {
  lost_.erase(progress_.step);
  partial_.failed(progress_.step);
  newest_ = 0;
}

void SavedSteps::fill(Boundary& mine) {
  const auto newest_of = [](const std::set<uint64_t>& steps) {
    return steps.empty() ? 0 : *steps.rbegin();
  };
  mine.failed_snapshot = newest_of(failed_);
  mine.lost_snapshot = newest_of(lost_);
  mine.retake = std::exchange(retake_, false);
}

void SavedSteps::apply_boundary(const Boundary& met) {
  failed_.erase(met.failed_snapshot);
  lost_.erase(met.lost_snapshot);
  if (met.failed_snapshot != 0) not_saved(met.failed_snapshot);
  if (met.lost_snapshot != 0) not_saved(met.lost_snapshot);
}

void SavedSteps::not_saved(uint64_t step) {
  partial_.failed(step);
  if (newest_ == step) newest_ = 0;
}

}  // namespace moetrain
