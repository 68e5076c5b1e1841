#include "client/src/cuda/stage_plan.h"

#include "formats/arena.h"
#include "formats/base/assert.h"
#include "formats/base/checked.h"

namespace ckpt::lib {

uint64_t StagePlan::room() const {
  if (chunks_.empty()) return chunk_bytes_;
  // A fragment starts on a block at the latest.
  const uint64_t used = base::align_up(chunks_.back().bytes, kBlockBytes) + kBlockBytes;
  return used + kAlignedFragmentBytes <= chunk_bytes_ ? chunk_bytes_ - used : chunk_bytes_;
}

void StagePlan::add(const StagedPlace& place) {
  CKPT_ASSERT(place.to.size() <= chunk_bytes_);
  const auto follows = [&](const StageChunk& chunk) {
    const std::byte* end = chunk.to + chunk.bytes;
    return place.to.data() >= end && place.to.data() - end < static_cast<int64_t>(kBlockBytes) &&
           chunk.offset_of(place) + place.to.size() <= chunk_bytes_;
  };
  if (chunks_.empty() || !follows(chunks_.back())) {
    chunks_.push_back({.to = place.to.data(), .bytes = 0, .has_gaps = false, .places = {}});
  }
  StageChunk& chunk = chunks_.back();
  chunk.has_gaps = chunk.has_gaps || chunk.offset_of(place) > chunk.bytes;
  chunk.bytes = chunk.offset_of(place) + place.to.size();
  chunk.places.push_back(place);
  last_chunk_[place.unit] = chunks_.size() - 1;
}

int64_t StagePlan::last_chunk_of(UnitId unit) const {
  const auto found = last_chunk_.find(unit);
  return found == last_chunk_.end() ? -1 : static_cast<int64_t>(found->second);
}

}  // namespace ckpt::lib
