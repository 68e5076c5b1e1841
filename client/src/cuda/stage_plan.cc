#include "client/src/cuda/stage_plan.h"

#include <algorithm>

#include "formats/arena.h"
#include "formats/base/assert.h"
#include "formats/base/checked.h"

namespace ckpt::lib {

size_t group_chunks(size_t groups, size_t slot, size_t slots) {
  const size_t most = std::max<size_t>(1, slots / 4);
  size_t wanted = 1;
  for (size_t i = 0; i < groups && wanted < most; ++i) wanted *= 2;
  return std::min({wanted, most, slots - slot});
}

uint64_t StagePlan::room() const {
  if (!is_open_) return chunk_bytes_;
  // A fragment starts on a block at the latest.
  const uint64_t used = base::align_up(chunks_.back().bytes, kBlockBytes) + kBlockBytes;
  return used + kAlignedFragmentBytes <= chunk_bytes_ ? chunk_bytes_ - used : chunk_bytes_;
}

void StagePlan::add(const StagedPlace& place, std::span<const DeviceBytes> sources) {
  CKPT_ASSERT(place.to.size() <= chunk_bytes_);
  const auto offset_in = [&](const StageChunk& chunk) {
    return static_cast<uint64_t>(place.to.data() - chunk.to);
  };
  const auto follows = [&](const StageChunk& chunk) {
    const std::byte* end = chunk.to + chunk.bytes;
    return place.to.data() >= end && place.to.data() - end < static_cast<int64_t>(kBlockBytes) &&
           offset_in(chunk) + place.to.size() <= chunk_bytes_;
  };
  if (place.unit >= chunks_up_to_.size()) chunks_up_to_.resize(place.unit + size_t{1});
  sources_.insert(sources_.end(), sources.begin(), sources.end());
  sources_end_.push_back(sources_.size());
  places_.push_back(place);
  if (!is_open_ || !follows(chunks_.back())) chunks_.push_back({.to = place.to.data()});
  is_open_ = true;
  StageChunk& chunk = chunks_.back();
  chunk.has_gaps = chunk.has_gaps || offset_in(chunk) > chunk.bytes;
  chunk.bytes = offset_in(chunk) + place.to.size();
  chunk.places_end = places_.size();
  chunks_up_to_[place.unit] = chunks_.size();
}

int64_t StagePlan::last_chunk_of(UnitId unit) const {
  return unit < chunks_up_to_.size() ? static_cast<int64_t>(chunks_up_to_[unit]) - 1 : -1;
}

void StagePlan::list(size_t first, size_t end, PackLists& lists) const {
  lists.pieces.clear();
  lists.ranges.clear();
  lists.bytes = 0;
  size_t place = first_place(first);
  size_t source = place == 0 ? 0 : sources_end_[place - 1];
  for (size_t i = first; i < end; ++i) {
    const StageChunk& chunk = chunks_[i];
    const uint64_t slot = (i - first) * chunk_bytes_;
    for (; place < chunk.places_end; ++place) {
      const MutableByteView to = places_[place].to;
      uint64_t at = slot + static_cast<uint64_t>(to.data() - chunk.to);
      lists.ranges.push_back({at, to.size()});
      lists.bytes += to.size();
      for (; source < sources_end_[place]; ++source) {
        lists.pieces.push_back({sources_[source].from, at, sources_[source].bytes});
        at += sources_[source].bytes;
      }
    }
  }
}

}  // namespace ckpt::lib
