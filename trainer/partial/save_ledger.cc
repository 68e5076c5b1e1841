#include "trainer/partial/save_ledger.h"

#include <algorithm>

#include "formats/base/assert.h"

namespace moetrain {

bool SaveLedger::all_saved() const {
  return std::all_of(saved_.begin(), saved_.end(),
                     [](const Saved& saved) { return saved.snapshot != 0; });
}

void SaveLedger::take(uint64_t snapshot, std::span<const uint32_t> experts,
                      std::span<const int64_t> held, uint64_t step) {
  CKPT_ASSERT(held.size() == saved_.size());
  CKPT_ASSERT(snapshot > (taken_.empty() ? 0 : taken_.back().snapshot));
  Taken taken{.snapshot = snapshot, .experts = {experts.begin(), experts.end()}, .before = {}};
  taken.before.reserve(experts.size());
  for (const uint32_t expert : experts) {
    taken.before.push_back(saved_.at(expert));
    saved_[expert] = {snapshot, held[expert], step};
  }
  taken_.push_back(std::move(taken));
  if (taken_.size() > kUndoMax) taken_.pop_front();
}

bool SaveLedger::fail(uint64_t snapshot) {
  const auto failed = std::find_if(taken_.begin(), taken_.end(),
                                   [&](const Taken& t) { return t.snapshot == snapshot; });
  if (failed == taken_.end()) return false;
  for (size_t i = 0; i < failed->experts.size(); ++i) {
    const uint32_t expert = failed->experts[i];
    if (saved_[expert].snapshot == snapshot) saved_[expert] = failed->before[i];
    // A later snapshot that fails as well must not bring this one back.
    for (auto later = failed + 1; later != taken_.end(); ++later) {
      for (size_t j = 0; j < later->experts.size(); ++j) {
        if (later->experts[j] == expert && later->before[j].snapshot == snapshot) {
          later->before[j] = failed->before[i];
        }
      }
    }
  }
  taken_.erase(failed);
  return true;
}

void SaveLedger::forget(uint64_t snapshot) {
  const auto was_it = [snapshot](const Saved& saved) { return saved.snapshot == snapshot; };
  std::replace_if(saved_.begin(), saved_.end(), was_it, Saved());
  for (Taken& later : taken_) {
    std::replace_if(later.before.begin(), later.before.end(), was_it, Saved());
  }
}

}  // namespace moetrain
